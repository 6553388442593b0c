"""Tables of collectives in Vidur's format, and tables made of measured rows."""

import pytest

from planner import InvalidInputError
from planner.formats.importers.timed_rows import MOST_SIZES, TimedRow, network_of, read_vidur
from tests.formats.refused import refused

HEADER = (
    ",time_stats.{0}.min,time_stats.{0}.max,time_stats.{0}.mean,time_stats.{0}.median,"
    "time_stats.{0}.std,rank,num_workers,size,collective,devices_per_node,max_devices_per_node\n"
)


def table(*rows: tuple[str, int, int, int], kind: str = "all_reduce") -> bytes:
    text = HEADER.format(kind)
    for place, (median, ranks, size, each) in enumerate(rows):
        text += f"{place},0.01,0.09,0.05,{median},0.01,0,{ranks},{size},{kind},{each},8\n"
    return text.encode()


def test_medians_in_ms_become_tables() -> None:
    rows, warnings = read_vidur(table(("0.043", 2, 2048, 1), ("0.056", 2, 10240, 1)))
    network, _ = network_of(rows)
    assert not warnings
    assert network.tables[0].points == ((2048, 43_000), (10240, 56_000))
    assert (network.tables[0].ranks, network.tables[0].per_host) == (2, 1)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_halves_list_a_share_of_the_message(kind: str) -> None:
    rows, _ = read_vidur(table(("0.1", 4, 1024, 4), kind=kind))
    assert rows[0].size_bytes == 4096


def test_zeros_are_left_out() -> None:
    rows, warnings = read_vidur(table(("0", 2, 8, 1), ("0.1", 2, 16, 1)))
    assert len(rows) == 1
    assert warnings == ("left out, 1 row with a time of 0: line 2",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b\n1,2\n", "expected a column num_workers"),
        (table(("x", 2, 8, 1)), "expected ms"),
        (table(("nan", 2, 8, 1)), "expected ms"),
        (table(("0.1", 3, 8, 2)), "3 ranks are not 2 a host"),
        (table(), "no row"),
        (table(("0.1", 2, 8, 1)).replace(b",2,8,", b",2,-8,"), "expected a whole number"),
    ],
)
def test_bad_tables_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_vidur(data)


# --- tables of measured rows


def row(size: int, time: int, ranks: int = 8) -> TimedRow:
    return TimedRow("all_reduce", ranks, 8, size, time, "here")


def test_repeated_sizes_count_by_their_median() -> None:
    network, warnings = network_of([row(8, 5), row(8, 90), row(8, 7), row(16, 9)])
    assert network.tables[0].points == ((8, 7), (16, 9))
    assert any("measured more than once" in warning for warning in warnings)


def test_falling_times_are_pooled() -> None:
    network, _ = network_of([row(8, 100), row(16, 10), row(32, 120)])
    assert network.tables[0].cost.is_monotone


def test_one_size_is_no_table() -> None:
    with refused(None, "two sizes"):
        network_of([row(8, 5)])
    network, warnings = network_of([row(8, 5), row(8, 5, 16), row(16, 6, 16)])
    assert [table.ranks for table in network.tables] == [16]
    assert any("left out, one size" in warning for warning in warnings)


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_thinned() -> None:
    network, warnings = network_of([row(8 * place, 10 + place) for place in range(1, 100_001)])
    points = network.tables[0].points
    assert len(points) <= MOST_SIZES + 1
    assert points[0][0] == 8
    assert points[-1][0] == 800_000
    assert any("100,000 sizes made" in warning for warning in warnings)
    cost = network.tables[0].cost
    for size in (100, 12_345, 700_000):
        assert abs(cost.cost_ns(size) - (10 + size / 8)) <= 2


def test_of_many_sizes_a_disturbed_one_does_not_stand_for_its_neighbours() -> None:
    disturbed = [row(8 * place, 10_000 if place % 7 == 0 else 10) for place in range(1, 5001)]
    network, _ = network_of(disturbed)
    late = [time for size, time in network.tables[0].points if 8 * 500 < size < 8 * 5000]
    assert late
    assert set(late) == {10}
