"""A profile and a measured network in files, for the command line."""

import json
from pathlib import Path
from typing import Any

from planner.cli import main

PROFILE = {
    "name": "tiny",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "layers": [
        {
            "name": f"l{place}",
            "forward_ns": 10**6,
            "backward_ns": 2 * 10**6,
            "parameter_bytes": size,
        }
        for place, size in enumerate((4000, 400_000, 40_000), 1)
    ],
}
TABLE = [[64, 200_000], [1000, 250_000], [100_000, 500_000], [1_000_000, 2_000_000]]
NETWORK: dict[str, Any] = {
    "collective": "all_reduce",
    "algorithm": "ring",
    "ranks": 3,
    "network": {"table": TABLE},
    "affine": {"startup_ns": 220_000, "ns_per_byte": 1.8},
}
LINK = ["--startup", "1us", "--bandwidth", "10Gb/s"]


def written(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def measured(folder: Path, **changes: Any) -> str:
    return written(folder / "network.json", {**NETWORK, **changes})


def compare(profile: str, *options: str) -> int:
    return main(["compare", profile, *options])
