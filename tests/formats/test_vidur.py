"""Tables of collectives in Vidur's format. The files here are made up in it."""

import pytest

from planner import InvalidInputError
from planner.formats.importers.timed_rows import network_of, read_vidur

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
