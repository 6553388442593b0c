"""Makes the measured clusters of ``data/clusters`` from public repositories.

    python data/make_networks.py FOLDER

FOLDER holds ``nccl-tests-cluster`` (github.com/xxrjun) and ``vidur`` (github.com/microsoft): their
logs and tables. Only times and sizes are taken; which, and under which licence, stands in each
cluster's ``source`` and ``notes``.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from planner.formats.importers.nccl_tests import read_nccl_tests
from planner.formats.importers.timed_rows import TimedRow, network_of, read_vidur
from planner.jsonio.network_measurements import encode_measured
from planner.model.measured import Link

HERE = Path(__file__).parent / "clusters"


def nccl_tests(paths: Iterable[Path]) -> Iterator[TimedRow]:
    """Yield the rows of logs, a test a folder or a file."""
    for path in sorted(paths):
        name = next((p for p in reversed(path.parts) if "_perf" in p), path.name)
        try:
            rows, warnings = read_nccl_tests(path.read_bytes(), name=name)
        except ValueError as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        for warning in warnings:
            print(f"{path}: {warning}", file=sys.stderr)
        yield from rows


def write(
    name: str, rows: Iterable[TimedRow], links: Mapping[int, int] | None = None, **fields: Any
) -> None:
    """Write one cluster."""
    network, warnings = network_of(
        rows, [Link(ranks, Fraction(rate)) for ranks, rate in (links or {}).items()]
    )
    for warning in warnings:
        print(f"{name}: {warning}", file=sys.stderr)
    provenance = fields.pop("provenance")
    body = json.dumps({"name": name, **fields}, indent=1, ensure_ascii=False)[:-2]
    text = f'{body},\n "network": {encode_measured(network, provenance).rstrip()}\n}}\n'
    (HERE / f"{name}.json").write_text(text, encoding="utf-8")


NOT_USED = (
    "Plans are priced by network; nic and link_bytes_per_s are line rates by data sheets.",
    "nic.startup_ns and link_startup_ns are assumed: 14 µs and 3.4 µs; 2.7 to 14 µs are plausible.",
    "message_ns is assumed: 3 µs, as in h100-32; 1 to 6 µs are plausible.",
)

LINKS = (
    "link_bytes_per_s and links are line rates by data sheets: NVLink bridges, and PCIe between.",
)

MEMORY = {"A100": 80 * 10**9, "H100": 80 * 10**9}


PCIE = {"A100": 32 * 10**9, "H100": 64 * 10**9}
"""Bytes a second in one direction: PCIe 4.0 and 5.0 of 16 lanes."""

BRIDGE = 300 * 10**9
"""Bytes a second in one direction over the NVLink bridges that join two cards, A100 or H100."""


def rails(hosts: int, accelerators: int, kind: str) -> dict[str, Any]:
    """Return the machines of a cluster of hosts with accelerators of a kind."""
    link, nic = (450, 50) if kind == "H100" else (300, 25)
    return {
        "machines": hosts,
        "cores": 104 if kind == "H100" else 96,
        "memory_bytes": accelerators * MEMORY[kind],
        "topology": {
            "kind": "rails",
            "accelerators": accelerators,
            "link_bytes_per_s": link * 10**9,
            "link_startup_ns": 3400,
        },
        "nic": {
            "bytes_per_s": nic * 10**9,
            "startup_ns": 14000,
            "message_ns": 3000,
            "per_machine": accelerators,
        },
    }


def vidur(folder: Path, name: str, place: str, what: str, hosts: int, each: int, kind: str) -> None:
    """Write a cluster of one of Vidur's tables."""
    file = f"data/profiling/network/{place}/all_reduce.csv"
    rows, warnings = read_vidur((folder / "vidur" / file).read_bytes())
    for warning in warnings:
        print(f"{name}: {warning}", file=sys.stderr)
    pairs = "pairwise" in place
    machines = rails(hosts, each, kind)
    if pairs:
        machines["topology"]["link_bytes_per_s"] = BRIDGE
    write(
        name,
        rows,
        {2: BRIDGE, each: PCIE[kind]} if pairs else None,
        source=f"Agrawal et al., Vidur, MLSys 2024: {file} of https://github.com/microsoft/vidur, "
        f"commit 7d47513 of 2024-11-19, MIT licence: {what}, NCCL by PyTorch",
        notes=[
            "Up to 64 or 512 MiB, medians of 3 runs and of neighbouring sizes, of some thousand.",
            "Only all-reduces were timed: pushes and pulls are taken for half of one.",
            *NOT_USED,
            *(LINKS if pairs else ()),
        ],
        **machines,
        provenance={"format": "vidur", "file": file, "commit": "7d47513", "licence": "MIT"},
    )


def main() -> None:
    folder = Path(sys.argv[1])
    runs = folder / "nccl-tests-cluster" / "benchmarks" / "example-cluster01"
    logs = [
        path
        for part in ("multi-node", "single-node", "smoke")
        for path in (runs / "nccl-benchmark-results" / part).rglob("*.log")
    ]
    write(
        "h100ib-10",
        nccl_tests(logs),
        source="xxrjun, nccl-tests-cluster, https://github.com/xxrjun/nccl-tests-cluster, commit "
        "455de4f of 2026-02-06, Apache-2.0: logs of nccl-tests 2.17.8 on 10 hosts of 8 H100 of 80 "
        "GB, runs 20260128 and 20260129 of example-cluster01, the smoke test included",
        notes=[
            "32 MiB to 16 GiB, out of place; of several runs of the same the median.",
            "Sizes below 32 MiB cost what 32 MiB do: answers say so.",
            *NOT_USED,
        ],
        **rails(10, 8, "H100"),
        provenance={"format": "nccl-tests", "commit": "455de4f", "licence": "Apache-2.0"},
    )
    both = "up to 16 of two DGX A100"
    vidur(folder, "a100dgx-2", "a100_dgx", both, 2, 8, "A100")
    vidur(folder, "h100dgx-1", "h100_dgx", "up to 8 of a DGX H100", 1, 8, "H100")
    pairs = "4 in a host, NVLink between pairs of them"
    vidur(folder, "a100pair-1", "a100_pairwise_nvlink", f"A100, {pairs}", 1, 4, "A100")
    vidur(folder, "h100pair-1", "h100_pairwise_nvlink", f"H100, {pairs}", 1, 4, "H100")


if __name__ == "__main__":
    main()
