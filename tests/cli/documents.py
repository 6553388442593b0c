"""Requests of all problems, and the files in the folder of each test of the command line."""

import json
from pathlib import Path
from typing import Any

from tests.jsonio.requests import BASES, CONTRACT
from tests.jsonio.test_iteration import CLUSTER
from tests.jsonio.test_iteration import PROFILE as MODEL
from tests.jsonio.test_yan import SMALL

ROOT = Path(__file__).parents[2]
PROVENANCE = {"kind": "synthetic", "source": "a test"}
LAYERS: list[dict[str, Any]] = [
    {"name": f"l{i}", "forward_ns": 1000 * i, "backward_ns": 2000, "parameter_bytes": 4000 * i}
    for i in range(1, 6)
]
PROFILE = {"name": "tiny", "provenance": PROVENANCE, "batch_size": 2, "layers": LAYERS}
LINK = "--startup 1us --bandwidth 10Gb/s"

IBATCH = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1, 5], "compute_ns": [2, 6, 1]}
BML = {**BASES["bml"], "gradient_bytes": 3600, "latency_ns": 1000}
DAMAGED = {**BML, "failed": {"nics": [[[0, 1], 0]], "servers": [[2, 2]]}}
CUT = {**BML, "failed": {"nics": [[[0, 1], 0], [[0, 1], 1]]}}
REQUESTS: dict[str, dict[str, Any]] = {
    "ibatch": IBATCH,
    "caramel": CONTRACT,
    "yan": SMALL,
    "bml": BML,
    "bml around failures": DAMAGED,
    "bigdl": json.loads((ROOT / "data/bigdl/vgg19-16.json").read_text()),
    "drizzle": json.loads((ROOT / "data/drizzle/inception64.json").read_text()),
    "overlap": BASES["overlap"],
}

TABLE = [[64, 200_000], [1000, 250_000], [100_000, 500_000], [1_000_000, 2_000_000]]
MEASURED: dict[str, Any] = {
    "collective": "all_reduce",
    "algorithm": "ring",
    "ranks": 3,
    "network": {"table": TABLE},
    "affine": {"startup_ns": 220_000, "ns_per_byte": 1.8},
}
"""A network as `planner calibrate network` measures it."""

SCALED = {
    **PROFILE,
    "layers": [
        {"name": f"l{i}", "forward_ns": 10**6, "backward_ns": 2 * 10**6, "parameter_bytes": size}
        for i, size in enumerate((4000, 400_000, 40_000), 1)
    ],
}
"""A profile whose layers are as large as what was measured."""

FILES = {
    "tiny.json": PROFILE,
    "scaled.json": SCALED,
    "model.json": MODEL,
    "cluster.json": CLUSTER,
    "network.json": MEASURED,
    "request.json": IBATCH,
    "yan.json": SMALL,
}
