"""What nccl-tests print: tables, behind prefixes, damaged, and JSON. The files are made up."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats.importers.nccl_tests import read_nccl_tests
from planner.formats.importers.timed_rows import TimedRow, bus_factor
from tests.formats.refused import refused

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
CELLS = [cells_of(size, time) for size, time in ROWS]
NONE = ["N/A"] * 4


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


def others(old: str, new: str | None = None) -> list[str]:
    """Return the output with another text, or without the lines that have it."""
    if new is None:
        return [line for line in OUTPUT if old not in line]
    return [re.sub(old, new, line) for line in OUTPUT]


def with_row(place: int, row: str) -> list[str]:
    """Return the output with another line in place of a row."""
    return [*OUTPUT[: FIRST + place], row, *OUTPUT[FIRST + place + 1 :]]


@given(
    st.lists(st.tuples(st.integers(8, 1 << 34), st.floats(1, 1e6)), min_size=1, max_size=8),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    st.integers(1, 4),
    st.integers(2, 8),
)
def test_what_is_printed(rows: list[tuple[int, float]], test: str, hosts: int, each: int) -> None:
    found, warnings = read_nccl_tests(run(rows, test=test, hosts=hosts, each=each).encode())
    assert not warnings
    assert [row.size_bytes for row in found] == [size for size, _ in rows]
    assert found[0].where == f"line {hosts * each + 5}"
    for row, (_, time) in zip(found, rows, strict=True):
        assert abs(row.time_ns - time * 1000) <= 6
        assert (row.collective, row.ranks, row.per_host) == (test, hosts * each, each)


def test_several_runs_in_one_file() -> None:
    runs = [("all_reduce", 8, 4), ("all_gather", 4, 4), ("reduce_scatter", 8, 4)]
    text = "".join(run(ROWS, test=test, hosts=ranks // each) for test, ranks, each in runs)
    rows, _ = read_nccl_tests(text.encode())
    assert [(row.collective, row.ranks, row.per_host) for row in rows[::3]] == runs


# --- prefixes and columns

NOISE = ["+ srun -l all_reduce_perf", "gpu-7:12:13 [0] NCCL INFO comm 0x1 rank 1 nranks 8"]
PREFIXES = [
    "worker-0: ",
    "[prterun-head-12345@1,0]<stdout>: ",
    "[1,0]<stdout>:",
    "[pod/nccl-launcher-x7k2p/launcher] ",
    "worker-1  | ",
    "[0]",
    " 0: ",
    "Nov 05 12:00:01 gpu-7 all_reduce[123]: ",
    "\x1b[32mworker-1  |\x1b[0m ",
    "[pod/a/b] 2024-11-05T12:00:01.123456789+01:00 [1,0]<stdout>:",
    "0 ",
    "{worker-0} ",
    '{"log":"',
]
MORE = "i_min i_max i_p99 i_cv%"
TIMED = [
    " ".join([*cells[:9], "1.0 2.0 2.0 5.0", *cells[9:], "1.0 2.0 2.0 5.0", "2025-01-01 12:00:00"])
    for cells in CELLS
]
"""Rows with times of iterations and of day."""
OLD = run(ROWS, wrong="2e-07").replace("#wrong", " error").replace("  root ", "       ")
"""The largest error in place of the number of wrong elements, and no root."""


@pytest.mark.parametrize(
    "lines",
    [
        *(
            lines
            for prefix in PREFIXES
            for lines in (
                [*NOISE, *(prefix + line for line in OUTPUT)],
                [(prefix + line).rstrip() for line in OUTPUT],
            )
        ),
        [f"2024-11-05T12:00:{place:02}.{place:03}Z {line}" for place, line in enumerate(OUTPUT)],
        [*OUTPUT[: FIRST + 1], "# see all_gather_perf", *OUTPUT[FIRST + 1 :]],
        [*OUTPUT, "0", "4096 8192"],
        with_row(1, aligned([*CELLS[1][:9], *NONE])),
        [*OUTPUT[:TOP], f"# {' '.join([*NAMES[:9], MORE, *NAMES[9:], MORE])} timestamp", *TIMED],
        OLD.replace("    -1 ", "       ").splitlines(),
    ],
)
def test_prefixes_other_columns_and_other_lines_change_nothing(lines: list[str]) -> None:
    assert read(lines) == RIGHT


@given(st.text("ab09[]<>:|,.@- \t#", max_size=12).filter(lambda text: "size" not in text))
def test_whatever_the_prefix_is_the_rows_are_right_or_refused(prefix: str) -> None:
    try:
        found = read([prefix + line for line in OUTPUT])
    except InvalidInputError:
        # A prefix that ends with a digit cannot be told from what follows it.
        assert re.search(r"[\w.#-]$", prefix)
        return
    assert found == RIGHT


# --- rows that are damaged, or cannot be true


@pytest.mark.parametrize("damage", ["0x1", "1,5", "12?", "nan.", ""])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_cell_that_cannot_be_read_is_an_error_with_line_and_column(damage: str, row: int) -> None:
    for column, name in enumerate(NAMES):
        cells = list(CELLS[row])
        cells[column] = damage
        lines = with_row(row, aligned(cells))
        if (1 <= column <= 4 or column > 8) and damage:  # says nothing that is needed
            assert read(lines) == RIGHT
            continue
        if not damage and row == 2:  # the end of a run that was stopped
            assert read(lines) == RIGHT[:2]
            continue
        last = name if damage else NAMES[-1]  # of fewer cells the last is missing
        with refused(f"line {FIRST + row + 1}, column {last}", ""):
            read(lines)


UNMEASURED = aligned([*CELLS[0][:5], *NONE, *CELLS[0][9:]])
"""A row with times of one kind, which are not those of the other."""
CUT, NO_TIME = "without its last columns", "without a time out of place"
BANDWIDTH, BUS = "whose bandwidth is not what", "whose bus bandwidth is not what"
NOTHING = aligned(["0", "0", "float", "sum", "-1", *("22.5", "0.00", "0.00", "0") * 2])


@pytest.mark.parametrize(
    ("lines", "kept", "reasons"),
    [
        *(
            ([*OUTPUT[: FIRST + 2], OUTPUT[FIRST + 2][:length]], RIGHT[:2], {2: CUT})
            for length in (60, 70, 100)  # the end of a run that was stopped
        ),
        (others(" 20.00 ", " 0.00 "), RIGHT[1:], {0: "with a time of 0"}),
        (others(" 20.00 ", " 2.00 "), RIGHT[1:], {0: f"{BANDWIDTH} size and time say"}),
        (others("0.0896", "9.0896"), RIGHT[1:], {0: f"{BUS} its bandwidth and ranks say"}),
        ([*with_row(0, UNMEASURED)[:-3], NOTHING], RIGHT[1:], {0: NO_TIME, 3: "of 0 bytes"}),
    ],
)
def test_left_out(lines: list[str], kept: list[tuple[int, int]], reasons: dict[int, str]) -> None:
    assert read(lines) == kept
    assert taken(lines)[1] == tuple(
        f"left out, 1 row {why}: line {FIRST + place + 1}" for place, why in reasons.items()
    )


def damaged(text: str, draw: Random) -> str:
    """Return a text of which a few characters are others, gone, blank or on another line."""
    for _ in range(draw.randint(1, 3)):
        start = draw.randrange(len(text))
        end = start + draw.randint(1, 12)
        odd = draw.choice("?x09.,-# []\t\n")
        middle = draw.choice(
            ["", odd, text[start] + odd, " " * (end - start), "[0] NCCL INFO 0 1 2"]
        )
        text = text[:start] + middle + text[draw.choice([start, start + 1, end]) :]
    return text


@given(st.randoms(use_true_random=False), st.sampled_from(["", "[0] ", "[1,0]<stdout>:", "w-0: "]))
def test_whatever_is_damaged_no_time_is_that_of_another(draw: Random, prefix: str) -> None:
    text = damaged("\n".join(prefix + line for line in OUTPUT), draw)
    try:
        rows, _ = taken([text])
    except InvalidInputError:
        return
    right = dict(RIGHT)
    for row in rows:
        assert (row.ranks, row.per_host) == (8, 4)
        if row.size_bytes in right:  # bandwidths say others to be wrong by more than this
            assert abs(row.time_ns - right[row.size_bytes]) <= 0.05 * right[row.size_bytes]


# --- ranks and hosts

COLUMNS = f"line {TOP + 1}: expected the columns time"
NUMBERED = [
    *OUTPUT[:TOP],
    " p4dn" + HEADER[0].replace("#", " "),
    *(f"   {place} {row}" for place, row in enumerate(OUTPUT[FIRST : FIRST + 3])),
]
"""An output whose first column is no size."""
MIXED = others(r"(Rank  3 .* on +)node0", r"\1node1")
NO_VALUE = r"column \w+: no value"


def headed(name: str, place: int) -> list[str]:
    """Return the output with one name of a column damaged: no other column moves there."""
    names = list(NAMES)
    names[[at for at, known in enumerate(names) if known == name][place]] = f"{name},"
    return [*OUTPUT[:TOP], "#" + aligned(names)[1:], *OUTPUT[TOP + 1 :]]


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        *(
            (with_row(1, "  ".join(CELLS[1][:cells])), {}, f"line {FIRST + 2}, {NO_VALUE}")
            for cells in (1, 2, 3)
        ),
        (with_row(1, OUTPUT[FIRST + 1][:70]), {}, f"line {FIRST + 2}, {NO_VALUE}"),
        (run(ROWS, wrong="3").splitlines(), {}, "with wrong elements"),
        (others("_perf"), {}, r"unknown test \(--collective says which\)"),
        (others("Rank  5", "Rank  3"), {}, r"line 8: rank 3 is listed twice, on node1.*MPI=1"),
        (others("Rank  5"), {}, "7 ranks listed up to 7, and not rank 5"),
        (others("Rank  5 Group  0", "Rank  5 Group  1"), {}, "split into 2 groups"),
        (MIXED, {}, r"numbers of ranks \(node0: 3, node1: 5"),
        (MIXED, {"per_host": 4}, "5 ranks are listed on node1"),
        (run(ROWS, hosts=1, each=1).splitlines(), {}, r"one rank is listed.*MPI=1"),
        (OUTPUT, {"ranks": 16}, "8 ranks are listed"),
        (others("Rank"), {}, "give --ranks"),
        *((headed(name, at), {}, COLUMNS) for name in ("time", "algbw", "busbw") for at in (0, 1)),
        (others("   time", "cputime"), {}, COLUMNS),  # times of a CPU are not those of transfers
        (NUMBERED, {}, rf"line {TOP + 2}: 14 cells.*names 13 columns"),
        *(([text], {}, "") for text in ("", "{", "{}", '{"results": [1]}', "\xff\xfe", "1 2 3")),
    ],
)
def test_what_is_no_output_is_refused(lines: list[str], options: dict[str, Any], said: str) -> None:
    with refused(None, said):
        read_nccl_tests("\n".join(lines).encode("latin-1"), **options)


@pytest.mark.parametrize(
    ("lines", "options", "each", "warned"),
    [
        (others("_perf"), {"collective": "all_reduce"}, 4, ""),
        (MIXED, {"per_host": 8}, 8, ""),
        (others("Rank"), {"ranks": 8}, 8, "all ranks are taken to share one; --ranks-per-host"),
        (others("Rank"), {"ranks": 8, "per_host": 4}, 4, ""),
    ],
)
def test_given_options(lines: list[str], options: dict[str, Any], each: int, warned: str) -> None:
    rows, warnings = read_nccl_tests("\n".join(lines).encode(), **options)
    assert times(rows) == RIGHT
    assert {(row.ranks, row.per_host) for row in rows} == {(8, each)}
    assert warned in warnings[0] if warned else not warnings


# --- JSON


def of_json(change: Callable[[Any], object] = lambda known: None) -> Any:
    devices = [{"rank": rank, "hostname": f"node{rank // 4}"} for rank in range(8)]
    results = []
    for size, time in ROWS:
        cells = [*map(float, cells_of(size, time)[5:8]), 0.0]
        out = dict(zip(("time", "alg_bw", "bus_bw", "nwrong"), cells, strict=True))
        row = {"size": size, "count": size // 4, "type": "float"}
        results.append({**row, "out_of_place": out, "in_place": None})
    known = {
        "version": 1,
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "config": {"nthreads": 1, "ngpus": 1, "devices": devices},
        "results": results,
    }
    change(known)
    return read_nccl_tests(json.dumps(known).encode())


def timed(time: Any, known: Any) -> None:
    known["results"][1]["out_of_place"]["time"] = time


def test_json_says_the_same_as_text() -> None:
    rows, _ = of_json()
    assert times(rows) == RIGHT
    assert (rows[0].ranks, rows[0].per_host) == (8, 4)
    one = {"devices": [{"rank": 0, "hostname": "a"}], "ngpus": 8}
    rows, _ = of_json(lambda known: known["config"].update(one))
    assert (rows[0].ranks, rows[0].per_host) == (8, 8)  # a process lists its first device only


def test_json_is_as_strict() -> None:
    def change(known: Any) -> None:
        first, second, _ = known["results"]
        first["in_place"], first["out_of_place"] = first["out_of_place"], None
        second["out_of_place"]["nwrong"] = 7
        known["results"].append({**first, "size": 0})

    rows, warnings = of_json(change)
    assert times(rows) == RIGHT[2:]
    assert warnings == (
        "left out, 1 row without a time out of place: results[0]",
        "left out, 1 row with wrong elements: results[1]",
        "left out, 1 row of 0 bytes: results[3]",
    )
    for damage in ("12", None, True, "nan"):
        with refused("results[1].out_of_place.time", "expected a number"):
            of_json(partial(timed, damage))
    with refused("config.devices[8]", "rank 0 is listed twice"):
        of_json(lambda known: known["config"]["devices"].append({"rank": 0, "hostname": "a"}))
