"""Tables of nccl-tests behind prefixes, with damaged cells, and ranks that are not those of a run.

The files here are made up in its format, with its widths.
"""

import json
import re
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats.importers.nccl_tests import read_nccl_tests
from tests.formats.test_nccl_tests import ROWS, document, run, times

NAMES = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)
WIDTHS = (12, 12, 8, 6, 6, *(7, 6, 6, 6) * 2)
UNITS = ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2)
SIZES = {1 << 20: 1626.5, 1 << 21: 2325.3, 1 << 22: 622.6}


def aligned(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def cells_of(size: int, time: float, ranks: int = 8) -> list[str]:
    def side(time: float) -> list[str]:
        bandwidth = size / time / 1000
        bus = bandwidth * 2 * (ranks - 1) / ranks
        return [f"{time:.1f}", f"{bandwidth:.2f}", f"{bus:.2f}", "0"]

    return [str(size), str(size // 4), "float", "sum", "-1", *side(time), *side(2 * time)]


HEADER = ["#" + aligned(NAMES)[1:], "#" + aligned(UNITS)[1:]]
TABLE = [*HEADER, *(aligned(cells_of(size, time)) for size, time in SIZES.items())]
RANKS = [
    f"#  Rank {rank:2} Group  0 Pid   {100 + rank} on      node{rank // 4} device {rank % 4:2} "
    f"[0000:0{rank}:00] NVIDIA H100 80GB HBM3"
    for rank in range(8)
]
START = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 9 step: 2(factor) warmup iters: 5 iters: 20"]
OUTPUT = [*START, *RANKS, "#", *TABLE, "# Out of bounds values : 0 OK"]


def read(lines: Sequence[str], **options: object) -> list[tuple[int, int]]:
    text = "\n".join(lines)
    rows, _ = read_nccl_tests(text.encode(), name="all_reduce.log", **options)  # type: ignore[arg-type]
    assert {(row.ranks, row.per_host) for row in rows} == {(8, 4)}
    return times(rows)


RIGHT = [(size, round(time * 1000)) for size, time in SIZES.items()]


def test_the_table_itself() -> None:
    assert read(OUTPUT) == RIGHT


@pytest.mark.parametrize(
    "prefix",
    [
        "worker-0: ",
        "[prterun-head-12345@1,0]<stdout>: ",
        "[1,0]<stdout>:",
        "[pod/nccl-launcher-x7k2p/launcher] ",
        "2024-11-05T12:00:01.123456789Z ",
        "worker-1  | ",
        "[0]",
        " 0: ",
        "nccl-launcher-x7k2p launcher ",
        "Nov 05 12:00:01 gpu-7 all_reduce[123]: ",
        "(all_reduce pid=4711, ip=10.0.0.1) ",
        "\x1b[32mworker-1  |\x1b[0m ",
        "[pod/a/b] 2024-11-05T12:00:01.123456789+01:00 [1,0]<stdout>:",
        "> ",
        "0 ",
        "{worker-0} ",
        '{"log":"',
    ],
)
def test_prefixes_of_launchers_are_found_by_the_header(prefix: str) -> None:
    noise = ["+ srun -l all_reduce_perf", "gpu-7:12:13 [0] NCCL INFO comm 0x1 rank 1 nranks 8"]
    assert read([*noise, *(prefix + line for line in OUTPUT)]) == RIGHT
    stripped = [(prefix + line).rstrip() for line in OUTPUT]
    assert read(stripped) == RIGHT


def test_prefixes_may_tell_the_time_of_each_line() -> None:
    lines = [f"2024-11-05T12:00:{place:02}.{place:03}Z {line}" for place, line in enumerate(OUTPUT)]
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


@pytest.mark.parametrize("column", range(len(NAMES)))
@pytest.mark.parametrize("damage", ["0x1", "1,5", "12?", "nan.", ""])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_cell_that_cannot_be_read_is_an_error_with_line_and_column(
    column: int, damage: str, row: int
) -> None:
    cells = [cells_of(size, time) for size, time in SIZES.items()]
    cells[row][column] = damage
    before = [*START, *RANKS, *HEADER]
    lines = [*before, *(aligned(some) for some in cells)]
    if (1 <= column <= 4 or column > 8) and damage:  # says nothing that is needed
        assert read(lines) == RIGHT
        return
    if not damage and row == 2:  # the end of a run that was stopped
        assert read(lines) == RIGHT[:2]
        return
    with pytest.raises(InvalidInputError) as caught:
        read(lines)
    place = column if damage else len(NAMES) - 1  # of fewer cells the last is missing
    assert caught.value.path == f"line {len(before) + row + 1}, column {NAMES[place]}"


@pytest.mark.parametrize("length", [60, 70, 100])
def test_the_last_row_of_a_run_that_was_stopped_is_left_out(length: int) -> None:
    lines = [*OUTPUT[:-2], OUTPUT[-2][:length]]
    assert read(lines) == RIGHT[:2]
    _, warnings = read_nccl_tests("\n".join(lines).encode(), name="all_reduce.log")
    assert warnings == ("left out, 1 row without its last columns: line 15",)
    with pytest.raises(InvalidInputError, match=r"line 15, column .*: no value"):
        read([*lines, OUTPUT[-2]])


def test_times_of_one_kind_are_never_taken_for_those_of_the_other() -> None:
    cells = [cells_of(size, time) for size, time in SIZES.items()]
    cells[0][5:9] = cells[1][9:13] = ["N/A"] * 4
    lines = [*START, *RANKS, *HEADER, *(aligned(some) for some in cells)]
    assert read(lines) == RIGHT[1:]
    _, warnings = read_nccl_tests("\n".join(lines).encode(), name="all_reduce.log")
    assert "without a time out of place: line 12" in warnings[0]


def test_json_is_as_strict() -> None:
    known = document(ROWS)
    known["results"][0]["in_place"] = known["results"][0]["out_of_place"]
    known["results"][0]["out_of_place"] = None
    rows, warnings = read_nccl_tests(json.dumps(known).encode())
    assert times(rows) == [(1 << 20, 55_500), (1 << 24, 400_250)]
    assert "without a time out of place" in warnings[0]
    for damage in ("12", None, True, "nan"):
        known["results"][1]["out_of_place"]["time"] = damage
        with pytest.raises(InvalidInputError, match="expected a number") as caught:
            read_nccl_tests(json.dumps(known).encode())
        assert caught.value.path == "results[1].out_of_place.time"


def test_rows_of_no_bytes_are_no_measurements() -> None:
    nothing = ["0", "0", "float", "sum", "-1", *("22.5", "0.00", "0.00", "0") * 2]
    assert read([*OUTPUT[:12], aligned(nothing), *OUTPUT[12:]]) == RIGHT
    text = "\n".join([*OUTPUT[:12], aligned(nothing), *OUTPUT[12:]])
    _, warnings = read_nccl_tests(text.encode(), name="all_reduce.log")
    assert warnings == ("left out, 1 row of 0 bytes: line 13",)
    known = document(ROWS)
    known["results"].append({**known["results"][0], "size": 0})
    _, warnings = read_nccl_tests(json.dumps(known).encode())
    assert warnings == ("left out, 1 row of 0 bytes: results[3]",)


def test_a_rank_listed_twice() -> None:
    with pytest.raises(InvalidInputError, match="rank 3 is listed twice, on node1") as caught:
        read([line.replace("Rank  5", "Rank  3") for line in OUTPUT])
    assert caught.value.path == "line 7"
    assert "MPI=1" in str(caught.value)
    known = document(ROWS)
    known["config"]["devices"].append(known["config"]["devices"][0])
    with pytest.raises(InvalidInputError, match="rank 0 is listed twice") as caught:
        read_nccl_tests(json.dumps(known).encode())
    assert caught.value.path == "config.devices[8]"


def test_a_rank_that_is_not_listed() -> None:
    with pytest.raises(InvalidInputError, match="7 ranks listed up to 7, and not rank 5"):
        read([line for line in OUTPUT if "Rank  5" not in line])


def test_groups_that_communicate_at_the_same_time() -> None:
    with pytest.raises(InvalidInputError, match="split into 2 groups"):
        read([line.replace("Rank  5 Group  0", "Rank  5 Group  1") for line in OUTPUT])


def test_hosts_with_different_numbers_of_ranks() -> None:
    lines = [re.sub(r"(Rank  3 .* on +)node0", r"\1node1", line) for line in OUTPUT]
    with pytest.raises(InvalidInputError, match=r"numbers of ranks \(node0: 3, node1: 5"):
        read(lines)
    with pytest.raises(InvalidInputError, match="5 ranks are listed on node1"):
        read(lines, per_host=4)
    rows, _ = read_nccl_tests("\n".join(lines).encode(), name="all_reduce.log", per_host=8)
    assert {(row.ranks, row.per_host) for row in rows} == {(8, 8)}


def test_processes_that_ran_on_their_own() -> None:
    alone = run(ROWS, hosts=1, each=1)
    with pytest.raises(InvalidInputError, match=r"one rank is listed.*MPI=1"):
        read_nccl_tests(alone.encode())


def test_a_second_run_that_was_listed_before_the_first_ends_does_not_take_its_rows() -> None:
    noise = "# see all_gather_perf for more"
    lines = [*OUTPUT[:13], noise, *OUTPUT[13:]]
    assert read(lines) == RIGHT


def test_a_first_column_that_is_no_size_is_named() -> None:
    header = " p4dn" + HEADER[0].replace("#", " ")
    lines = [*START, *RANKS, header, *(f"   {place} {row}" for place, row in enumerate(TABLE[2:]))]
    with pytest.raises(InvalidInputError, match=r"line 11: 14 cells.*names 13 columns"):
        read(lines)


def test_times_of_a_cpu_are_not_those_of_transfers() -> None:
    lines = [line.replace("   time", "cputime") for line in OUTPUT]
    with pytest.raises(InvalidInputError, match="line 11: expected the columns time"):
        read(lines)


def test_times_of_iterations_and_of_day_stand_behind_others() -> None:
    names = " ".join([*NAMES[:9], "i_min i_max i_p99 i_cv%", *NAMES[9:], "i_min i_max i_p99 i_cv%"])
    units = "(us) (GB/s) (GB/s) (us) (us) (us) (%)"
    lines = [*START, *RANKS, f"# {names} timestamp", f"# (B) (elements) {units} {units} %Y %H"]
    for size, time in SIZES.items():
        cells = cells_of(size, time)
        more = "1.0 2.0 2.0 5.0"
        lines.append(
            f"{' '.join(cells[:9])} {more} {' '.join(cells[9:])} {more} 2025-01-01 12:00:00"
        )
    assert read(lines) == RIGHT


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
        rows, _ = read_nccl_tests(text.encode(), name="all_reduce.log")
    except InvalidInputError:
        return
    right = dict(RIGHT)
    for row in rows:
        assert (row.ranks, row.per_host) == (8, 4)
        if row.size_bytes in right:  # bandwidths say others to be wrong by more than this
            assert abs(row.time_ns - right[row.size_bytes]) <= 0.05 * right[row.size_bytes]


@pytest.mark.parametrize("name", ["time", "algbw", "busbw"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_header_does_not_move_columns(name: str, place: int) -> None:
    names = list(NAMES)
    names[[at for at, known in enumerate(names) if known == name][place]] = f"{name},"
    lines = [*START, *RANKS, "#" + aligned(names)[1:], *TABLE[1:]]
    with pytest.raises(InvalidInputError, match="line 10: expected the columns time"):
        read(lines)


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_the_first_cells_of_a_row_are_a_row(cells: int) -> None:
    lines = list(OUTPUT)
    lines[13] = aligned([*cells_of(1 << 21, 1.0)[:cells], *[""] * (len(NAMES) - cells)]).rstrip()
    with pytest.raises(InvalidInputError, match=r"line 14, column \w+: no value"):
        read(lines)
    after = [*OUTPUT, "0", "4096 8192"]
    assert read(after) == RIGHT


def test_where_no_hosts_are_listed_one_is_assumed_and_said() -> None:
    text = "\n".join([*START, *TABLE])
    rows, warnings = read_nccl_tests(text.encode(), name="all_reduce.log", ranks=8)
    assert {(row.ranks, row.per_host) for row in rows} == {(8, 8)}
    assert "all ranks are taken to share one; --ranks-per-host" in warnings[0]
    assert not read_nccl_tests(text.encode(), name="all_reduce.log", ranks=8, per_host=4)[1]
