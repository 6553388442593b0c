"""Tables of measured collectives: DeepSpeed's communication logger, and Vidur's. Made up here.

And rows of tables for NCCL's example tuner plugin, read again by its documented grammar.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats.exporters.nccl_tuner import Rule, encode_rules, rules_of
from planner.formats.importers.deepspeed_comms import read_deepspeed_comms
from planner.formats.importers.timed_rows import MOST_SIZES, TimedRow, network_of, read_vidur
from planner.model.measured import Measured, MeasuredNetwork
from tests.formats.refused import refused
from tests.formats.test_nccl_tests import damaged

LEFT = ("Comm. Op", "Message Size", "Count")
HEADER = (*LEFT, "Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)", "busbw_avg (Gbps)")
NO_CONTENTION = (
    *LEFT,
    *(f"{kind} {of}(ms)" for kind in ("Total", "Avg") for of in ("comm lat", "straggler")),
)


def wide(cells: Sequence[str]) -> str:
    return "".join(f"{cell:<20}" for cell in cells)


def row(size: str, *numbers: float | str) -> str:
    shown = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in numbers]
    return wide([" ", size, *shown])


TABLE = [
    wide(HEADER),
    "broadcast",
    row("2.0 MB", 24, 2.05, 0.08, 397.06, 372.24),
    "all_gather_into_tensor",
    row("0B", 2, 0.20, 0.10, 0.0, 0.0),
    row("64.0 MB", 10, 120.04, 12.00, 715.83, 671.09),
    row("128.0 MB", 3, 99.0, 20.0, 858.99, 805.31),
    "reduce_scatter_tensor",
    row("1.45 GB", 2, 271.11, 135.56, 91.88, 86.14),
    row("1.0 KB", 4, 0.3, 0.08, 0.11, 0.1),
    "all_reduce | [Caller Func: step]",
    row("4.0 B", 1, 0.0, 0.0, 0.0, 0.0),
    row("6.31 KB", 100, 7.62, 0.08, 1.35, 1.27),
    row("1.5 MB", 1, 0.5, 0.5, 50.33, 47.19),
]
STRAGGLERS = [
    "_______________________________",
    "Breakdown with straggler effect",
    "-------------------------------",
    wide(NO_CONTENTION),
    "all_reduce",
    row("6.31 KB", 100, 5.0, 2.62, 0.05, 0.03),
    row("1.5 MB", 1, 0.25, 0.25, 0.25, 0.25),
]


def taken(
    lines: Sequence[str], ranks: int | None = 16, per_host: int | None = 8
) -> tuple[list[TimedRow], str]:
    """Return the rows, and what is warned of."""
    text = "\n".join(lines).encode()
    rows, warnings = read_deepspeed_comms(text, ranks=ranks, per_host=per_host)
    assert {(row.ranks, row.per_host) for row in rows} == {(ranks, per_host)}
    return rows, "; ".join(warnings)


def read(lines: Sequence[str]) -> dict[tuple[str, int], int]:
    return {(row.collective, row.size_bytes): row.time_ns for row in taken(lines)[0]}


MB = 1 << 20
RIGHT = {
    # An all-gather's size is what one of 16 ranks gives.
    ("all_gather", 1024 * MB): 12_004_000,
    # The total and the average do not agree: outliers are in the total.
    ("all_gather", 2048 * MB): 20_000_000,
    ("reduce_scatter", 1556925645): 135_555_000,
    ("reduce_scatter", 1024): 75_000,
    ("all_reduce", 6461): 76_200,
    ("all_reduce", 3 * MB // 2): 500_000,
}


def test_sizes_and_times_are_those_of_whole_messages() -> None:
    assert read(TABLE) == RIGHT
    rows, said = taken(TABLE)
    assert len(network_of(rows)[0].tables) == 3
    for part in ("groups of all sizes", "show_straggler", "of 0 bytes: line 5", "broadcast"):
        assert part in said
    assert "with a time of 0: line 12" in said
    assert "those of 16 ranks" not in said


def test_prefixes_of_launchers_and_earlier_summaries_change_nothing() -> None:
    assert read([f"worker-0: {line}" for line in TABLE]) == RIGHT
    noise = "[2022-06-26 01:39:55,722] [INFO] [logging.py:69:log_dist] [Rank 0] step=1"
    assert read([noise, *TABLE[:5], noise, *TABLE[5:]]) == RIGHT
    earlier = [TABLE[0], "all_reduce", row("4.0 MB", 1, 1.0, 1.0, 1.0, 1.0)]
    assert read([*earlier, *TABLE]) == RIGHT
    assert re.search("(^|; )2 summaries", taken([*earlier, *TABLE])[1])


def test_times_without_waiting_are_taken_where_they_are_printed() -> None:
    alone = {("all_reduce", 6461): 50_000, ("all_reduce", 3 * MB // 2): 250_000}
    assert read([*TABLE, *STRAGGLERS]) == alone
    assert "show_straggler" not in taken([*TABLE, *STRAGGLERS])[1]


@pytest.mark.parametrize(
    ("lines", "ranks", "said"),
    [
        (TABLE, (None, None), "give --ranks and --ranks-per-host"),
        (TABLE, (16, None), "give --ranks and --ranks-per-host"),
        (TABLE, (None, 8), "give --ranks and --ranks-per-host"),
        (TABLE, (12, 8), "12 ranks are not 8 a host"),
        (TABLE[:3], (16, 8), r"only broadcast: .*nccl-tests"),
        (["hello"], (16, 8), "no summary"),
        (TABLE[:1], (16, 8), "no summary"),
    ],
)
def test_no_network(lines: list[str], ranks: tuple[int | None, int | None], said: str) -> None:
    with refused(None, said):
        taken(lines, *ranks)


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("12.00 ", "12?00", "line 6, column Avg Latency(ms)"),
        ("120.04", "nan   ", "line 6, column Total Latency(ms)"),
        ("64.0 MB", "64.0 QB", "line 6, column Message Size"),
        ("64.0 MB", "6.4.0MB", "line 6, column Message Size"),
        ("64.0 MB", "6?.0 MB", "line 6, column Message Size"),
        ("10 ", "1O ", "line 6, column Count"),
        ("671.09", "      ", "line 6, column busbw_avg (Gbps)"),
        ("671.09", "671 09", "line 6"),
    ],
)
def test_a_cell_that_cannot_be_read_is_an_error(old: str, new: str, path: str) -> None:
    lines = list(TABLE)
    lines[5] = lines[5].replace(old, new)
    assert lines[5] != TABLE[5]
    with refused(path, ""):
        read(lines)


@given(st.randoms(use_true_random=False))
def test_whatever_is_damaged_it_is_read_or_refused(draw: Random) -> None:
    text = damaged("\n".join([*TABLE, *STRAGGLERS]), draw)
    try:
        rows, _ = read_deepspeed_comms(text.encode(), ranks=16, per_host=8)
    except InvalidInputError:
        return
    assert all(row.size_bytes > 0 and row.time_ns > 0 for row in rows)


# --- Vidur

COLUMNS = (
    ",time_stats.{0}.min,time_stats.{0}.max,time_stats.{0}.mean,time_stats.{0}.median,"
    "time_stats.{0}.std,rank,num_workers,size,collective,devices_per_node,max_devices_per_node\n"
)


def vidur(*rows: tuple[str, int, int, int], kind: str = "all_reduce") -> bytes:
    text = COLUMNS.format(kind)
    for place, (median, ranks, size, each) in enumerate(rows):
        text += f"{place},0.01,0.09,0.05,{median},0.01,0,{ranks},{size},{kind},{each},8\n"
    return text.encode()


def test_medians_in_ms_become_tables() -> None:
    data = vidur(("0", 2, 8, 1), ("0.043", 2, 2048, 1), ("0.056", 2, 10240, 1))
    rows, warnings = read_vidur(data)
    network, _ = network_of(rows)
    assert warnings == ("left out, 1 row with a time of 0: line 2",)
    assert network.tables[0].points == ((2048, 43_000), (10240, 56_000))
    assert (network.tables[0].ranks, network.tables[0].per_host) == (2, 1)
    for kind in ("all_gather", "reduce_scatter"):  # a share of the message is listed
        (half,), _ = read_vidur(vidur(("0.1", 4, 1024, 4), kind=kind))
        assert half.size_bytes == 4096


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b\n1,2\n", "expected a column num_workers"),
        (vidur(("x", 2, 8, 1)), "expected ms"),
        (vidur(("nan", 2, 8, 1)), "expected ms"),
        (vidur(("0.1", 3, 8, 2)), "3 ranks are not 2 a host"),
        (vidur(), "no row"),
        (vidur(("0.1", 2, 8, 1)).replace(b",2,8,", b",2,-8,"), "expected a whole number"),
    ],
)
def test_bad_tables_are_refused(data: bytes, said: str) -> None:
    with refused(None, said):
        read_vidur(data)


# --- tables of measured rows


def timed(size: int, time: int, ranks: int = 8) -> TimedRow:
    return TimedRow("all_reduce", ranks, 8, size, time, "here")


def test_repeated_sizes_count_by_their_median() -> None:
    network, warnings = network_of([timed(8, 5), timed(8, 90), timed(8, 7), timed(16, 9)])
    assert network.tables[0].points == ((8, 7), (16, 9))
    assert any("measured more than once" in warning for warning in warnings)


def test_one_size_is_no_table() -> None:
    with refused(None, "two sizes"):
        network_of([timed(8, 5)])
    network, warnings = network_of([timed(8, 5), timed(8, 5, 16), timed(16, 6, 16)])
    assert [table.ranks for table in network.tables] == [16]
    assert any("left out, one size" in warning for warning in warnings)


def test_ten_thousand_rows_are_thinned() -> None:
    network, warnings = network_of([timed(8 * place, 10 + place) for place in range(1, 10_001)])
    points = network.tables[0].points
    assert len(points) <= MOST_SIZES + 1
    assert points[0][0] == 8
    assert points[-1][0] == 80_000
    assert any("10,000 sizes made" in warning for warning in warnings)
    cost = network.tables[0].cost
    for size in (100, 12_345, 70_000):
        assert abs(cost.cost_ns(size) - (10 + size / 8)) <= 2


def test_of_many_sizes_a_disturbed_one_does_not_stand_for_its_neighbours() -> None:
    disturbed = [timed(8 * place, 10_000 if place % 7 == 0 else 10) for place in range(1, 5001)]
    network, _ = network_of(disturbed)
    late = [time for size, time in network.tables[0].points if 8 * 500 < size < 8 * 5000]
    assert late
    assert set(late) == {10}


# --- rows for NCCL's tuner

Points = tuple[tuple[int, int], ...]
CHOICES = (("ring", "simple"), ("tree", "ll"), ("nvls", "ll128"))
POINTS = st.lists(
    st.tuples(st.integers(8, 10**6), st.integers(1, 10**6)),
    min_size=2,
    max_size=8,
    unique_by=lambda row: row[0],
).map(lambda found: tuple(sorted(found)))


def network(points: Points, ranks: int = 16) -> MeasuredNetwork:
    return MeasuredNetwork((Measured("all_reduce", ranks, 8, points),))


def read_again(text: str) -> tuple[Rule, ...]:
    lines = (line.split(",") for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Rule("all_reduce", int(least), int(most), algorithm, protocol, int(hosts), int(ranks))
        for _, least, most, algorithm, protocol, _, hosts, ranks, *_ in lines
    )


@given(st.lists(POINTS, min_size=2, max_size=3), st.data())
def test_every_size_takes_what_costs_least(tables: list[Points], data: st.DataObject) -> None:
    networks = dict(zip(CHOICES, map(network, tables), strict=False))
    costs = {choice: known.tables[0].cost for choice, known in networks.items()}
    first = max(cost.points[0][0] for cost in costs.values())
    last = min(cost.points[-1][0] for cost in costs.values())
    if first > last:
        with refused(None, "nothing to tune"):
            rules_of(networks)
        return
    rules = rules_of(networks)
    assert read_again(encode_rules(rules, "a test")) == rules
    assert rules[0].least_bytes == first
    assert rules[-1].most_bytes == last
    assert all(one.most_bytes + 1 == two.least_bytes for one, two in pairwise(rules))
    for _ in range(10):
        size = data.draw(st.integers(first, last))
        (rule,) = [one for one in rules if one.least_bytes <= size <= one.most_bytes]
        taken = costs[rule.algorithm, rule.protocol].cost_ns(size)
        assert taken <= min(cost.cost_ns(size) for cost in costs.values()) + 2  # rounding


def test_the_switch_is_where_the_tables_cross_or_at_the_last_size_alone() -> None:
    falls, rises = network(((80, 3), (117, 244))), network(((10, 1), (123, 253)))
    rules = rules_of({("ring", "simple"): falls, ("tree", "ll"): rises})
    assert [(rule.most_bytes, rule.algorithm) for rule in rules] == [(116, "ring"), (117, "tree")]
    low_first, high_first = network(((0, 100), (1000, 1100))), network(((0, 500), (1000, 700)))
    low, high = rules_of({("tree", "ll"): low_first, ("ring", "simple"): high_first})
    assert (low.algorithm, high.algorithm) == ("tree", "ring")
    assert low.most_bytes in (499, 500)  # where both cost the same
    assert low.line == f"allreduce,0,{low.most_bytes},tree,ll,-1,2,16,-1,-1"


def test_unknown_names_and_single_choices_are_refused() -> None:
    known = network(((1, 1), (2, 2)))
    with refused(None, "star"):
        rules_of({("star", "ll"): known, ("ring", "ll"): known})
    with refused(None, "nothing to tune"):
        rules_of({("ring", "ll"): known})
