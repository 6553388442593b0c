"""Output of nccl-tests, made up: a table of rows, and what is read of its lines."""

from collections.abc import Sequence
from typing import Any

from planner.formats.importers.nccl_tests import read_nccl_tests
from planner.formats.importers.timed_rows import TimedRow, bus_factor

NAMES = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)
UNITS = ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2)
WIDTHS = (12, 12, 8, 6, 6, *(7, 6, 6, 6) * 2)
ROWS = ((1024, 20.0), (1 << 20, 55.5), (1 << 24, 400.25))
RIGHT = [(size, round(time * 1000)) for size, time in ROWS]


def aligned(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def cells_of(size: int, time: float, factor: float = 7 / 4, wrong: str = "0") -> list[str]:
    def side(time: float, wrong: str) -> list[str]:
        bandwidth = size / time / 1000
        return [f"{time:.2f}", f"{bandwidth:.4f}", f"{bandwidth * factor:.4f}", wrong]

    sides = *side(time, wrong), *side(2 * time, "N/A")
    return [str(size), str(size // 4), "float", "sum", "-1", *sides]


HEADER = ["#" + aligned(NAMES)[1:], "#" + aligned(UNITS)[1:]]


def run(
    rows: Sequence[tuple[int, float]],
    *,
    test: str = "all_reduce",
    hosts: int = 2,
    each: int = 4,
    wrong: str = "0",
) -> str:
    factor = float(bus_factor(test, hosts * each))  # type: ignore[arg-type]
    lines = [
        f"# Collective test starting: {test}_perf",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20",
        *(
            f"#  Rank {rank:2} Group  0 Pid   {100 + rank} on      node{rank // each} device "
            f"{rank % each:2} [0000:0{rank}:00] NVIDIA H100 80GB HBM3"
            for rank in range(hosts * each)
        ),
        *HEADER,
        *(aligned(cells_of(size, time, factor, wrong)) for size, time in rows),
        *("# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 12.3 "),
        f"# Collective test concluded: {test}_perf",
    ]
    return "\n".join([*lines, ""])


OUTPUT = run(ROWS).splitlines()
TOP = OUTPUT.index(HEADER[0])
FIRST = TOP + 2
"""Places of the header and of the first row; a line's number is one more."""


def times(rows: Sequence[TimedRow]) -> list[tuple[int, int]]:
    return [(row.size_bytes, row.time_ns) for row in rows]


def taken(lines: Sequence[str], **options: Any) -> tuple[list[TimedRow], tuple[str, ...]]:
    return read_nccl_tests("\n".join(lines).encode(), name="all_reduce.log", **options)


def read(lines: Sequence[str]) -> list[tuple[int, int]]:
    rows, _ = taken(lines)
    assert {(row.collective, row.ranks, row.per_host) for row in rows} == {("all_reduce", 8, 4)}
    return times(rows)
