"""Costs of collectives among numbers of ranks, measured or not, and the NICs they tell of."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaving_out import from_smaller, ranks_left_out, sizes_left_out, summary

from planner.families.collectives.prediction import (
    measured_nic,
    predicted,
    range_note,
    with_measured_nics,
)
from planner.model.clusters import Cluster, Nic
from planner.model.costs import TableCost
from planner.model.measured import COLLECTIVES, Collective, Link, Measured, MeasuredNetwork
from planner.model.topologies import Rails, Switch
from tests.formats.refused import refused

SIZES = tuple(2**power for power in range(10, 31, 2))


def ring(ranks: int, size: int, per_host: int = 1, *, step: int = 5000) -> int:
    """A half along a ring of hosts: its steps, and (N-1)/N of the bytes at 20 GB/s."""
    members = ranks // per_host if ranks > per_host else ranks
    return round((members - 1) * step + Fraction(ranks - 1, ranks) * size / 20)


def table(
    ranks: int, per_host: int = 1, collective: Collective = "all_gather", step: int = 5000
) -> Measured:
    points = tuple((size, ring(ranks, size, per_host, step=step)) for size in SIZES)
    return Measured(collective, ranks, per_host, points)


def network_of(*tables: Measured, links: tuple[tuple[int, int], ...] = ()) -> MeasuredNetwork:
    pairs = tuple(Link(ranks, Fraction(rate)) for ranks, rate in links)
    return MeasuredNetwork(tables, pairs)


def test_a_table_of_just_that_is_taken_as_it_is() -> None:
    network = network_of(table(4), table(8))
    known = predicted(network, "all_gather", 8, 1)
    assert known.cost.points == table(8).points
    assert known.notes == ()


@pytest.mark.parametrize("ranks", [2, 32, 64, 1000])
def test_other_numbers_follow_the_steps_and_the_volume(ranks: int) -> None:
    network = network_of(table(4), table(8), table(16))
    known = predicted(network, "all_gather", ranks, 1)
    for size, time in known.cost.points:
        assert abs(time - ring(ranks, size)) <= max(4, time * 1e-3)
    assert "extrapolated from 4, 8, 16" in known.notes[0]


def test_a_single_table_is_extended_by_its_start_up() -> None:
    known = predicted(network_of(table(8)), "all_gather", 16, 1)
    for size, time in known.cost.points:
        assert abs(time / ring(16, size) - 1) < 0.02


def launched(ranks: int, size: int, rate: float) -> int:
    """An all-reduce within a host: a launch of 40 us, and (N-1)/N of the bytes each way."""
    return round(40_000 + 2 * (ranks - 1) / ranks * size / rate)


def within(ranks: int, rate: float = 150.0) -> Measured:
    return Measured(
        "all_reduce", ranks, ranks, tuple((size, launched(ranks, size, rate)) for size in SIZES)
    )


def test_within_a_host_the_launch_does_not_grow_with_the_ranks() -> None:
    known = predicted(network_of(within(2)), "all_reduce", 8, 8)
    for size, time in known.cost.points:
        assert abs(time / launched(8, size, 150.0) - 1) < 0.02
    assert known.notes == ("all_reduce among 8 ranks extrapolated from 2",)


def test_slower_links_are_those_of_more_ranks() -> None:
    links = ((2, 300), (4, 32))
    network = network_of(within(2, 150.0), links=links)
    known = predicted(network, "all_reduce", 4, 4)
    for size, time in known.cost.points:
        assert abs(time / launched(4, size, 16.0) - 1) < 0.02
    assert network.link_rate(3) == network.link_rate(9) == 32
    measured = network_of(within(2, 150.0), within(4, 20.0), links=links)
    for size, time in predicted(measured, "all_reduce", 8, 8).cost.points:
        assert abs(time / launched(8, size, 20.0) - 1) < 0.05


@pytest.mark.parametrize(
    ("links", "path"),
    [(((2, 0),), "bytes_per_s"), (((1, 5),), "ranks"), (((4, 5), (2, 6)), "links[1].ranks")],
)
def test_bad_links_are_refused(links: tuple[tuple[int, int], ...], path: str) -> None:
    with refused(path, ""):
        network_of(within(2), links=links)


def test_ranks_of_hosts_count_hosts() -> None:
    network = network_of(table(16, 8), table(32, 8))
    for size, time in predicted(network, "all_gather", 80, 8).cost.points:
        assert abs(time - ring(80, size, 8)) <= max(4, time * 1e-3)


@given(st.integers(5, 15), st.sampled_from(SIZES))
def test_between_two_tables_costs_are_between_them(ranks: int, size: int) -> None:
    network = network_of(table(4), table(16))
    known = predicted(network, "all_gather", ranks, 1)
    assert ring(4, size) - 1 <= known.cost.cost_ns(size) <= ring(16, size) + 1
    assert "interpolated between 4 and 16" in known.notes[0]


def test_within_hosts_says_nothing_of_across() -> None:
    network = network_of(table(4, 4), table(8, 8))
    with refused(None, "only such within a host"):
        predicted(network, "all_gather", 16, 8)
    assert predicted(network, "all_gather", 6, 6).notes


def test_another_number_a_host_is_said() -> None:
    known = predicted(network_of(table(16, 8), table(32, 8)), "all_gather", 16, 4)
    assert known.cost.points == table(16, 8).points
    assert "taken for that with 8 a host" in known.notes[0]


def test_missing_collectives_are_made_of_the_others() -> None:
    halves = network_of(table(8), table(8, collective="reduce_scatter"))
    whole = predicted(halves, "all_reduce", 8, 1)
    assert whole.cost.cost_ns(2**20) == 2 * ring(8, 2**20)
    only = network_of(table(8, collective="all_reduce"))
    assert predicted(only, "all_gather", 8, 1).cost.cost_ns(2**20) == -(-ring(8, 2**20) // 2)
    one = network_of(table(8))
    assert predicted(one, "reduce_scatter", 8, 1).cost.points == table(8).points
    for known in (whole, predicted(one, "all_reduce", 8, 1)):
        assert "was not measured" in known.notes[-1]


points = st.lists(
    st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)),
    min_size=2,
    max_size=12,
    unique_by=lambda point: point[0],
).map(lambda found: tuple(sorted(found)))


@given(
    st.lists(
        st.tuples(st.integers(2, 64), points), min_size=1, max_size=4, unique_by=lambda t: t[0]
    ),
    st.integers(2, 256),
    st.sampled_from(COLLECTIVES),
)
def test_costs_never_fall(
    tables: list[tuple[int, tuple[tuple[int, int], ...]]], ranks: int, collective: Collective
) -> None:
    measured = (Measured("all_reduce", count, 1, rows) for count, rows in tables)
    known = predicted(network_of(*measured), collective, ranks, 1)
    assert known.cost.is_monotone
    assert all(time >= 0 for _, time in known.cost.points)


def test_what_is_beyond_a_table_is_said() -> None:
    cost = TableCost(((1024, 10), (4096, 20)))
    assert range_note(cost, "all_gather", [1024, 4096]) is None
    said = range_note(cost, "all_gather", [1, 5000, 6000])
    assert said is not None
    assert "1 of 3 are below its least size (1,024 B)" in said
    assert "2 of 3 are above its largest (4,096 B)" in said


def test_leaving_out_finds_no_error_where_there_is_none() -> None:
    line = Measured(
        "all_gather", 4, 1, tuple((size, 1000 + size) for size in (64, 128, 512, 2**21))
    )
    assert [one.error for one in sizes_left_out(line)] == [0.0, 0.0]
    network = network_of(table(4), table(8), table(16), table(32))
    for held_out in (list(from_smaller(network)), list(ranks_left_out(network))):
        known = summary(held_out)
        assert known is not None
    largest = [one for one in from_smaller(network) if one.table.ranks == 32]
    assert max(abs(one.error) for one in largest) < 1e-3


def test_leaving_out_finds_an_error() -> None:
    crooked = Measured("all_gather", 4, 1, ((64, 100), (128, 400), (256, 420)))
    (one,) = sizes_left_out(crooked)
    assert one.predicted_ns == 207
    assert one.error == 207 / 400 - 1


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"collective": "gather"}, "collective"),
        ({"ranks": 1}, "ranks"),
        ({"per_host": 3}, "ranks_per_host"),
        ({"points": ((1, 1),)}, "table"),
        ({"points": ((1, 0), (2, 1))}, "table[0][1]"),
        ({"points": ((2, 1), (2, 2))}, "table[1][0]"),
    ],
)
def test_bad_tables_are_refused(options: dict[str, object], path: str) -> None:
    good = {"collective": "all_reduce", "ranks": 4, "per_host": 2, "points": ((1, 1), (2, 2))}
    with refused(path, ""):
        Measured(**(good | options))  # type: ignore[arg-type]


def test_two_tables_of_the_same_are_refused() -> None:
    with refused(None, "two tables among 4 ranks"):
        network_of(table(4), table(4))


# --- NICs over which a ring takes what was measured


def on_nics(collective: Collective, ranks: int, startup: int, rate: int, each: int = 1) -> Measured:
    """Return the time of a ring on NICs of `rate` bytes/s, with several ranks a host."""
    hops = (ranks - 1) * (2 if collective == "all_reduce" else 1)
    ns_per_byte = Fraction(hops * 10**9, ranks * rate)
    sizes = (2**10, 2**16, 2**20, 2**24)
    points = tuple((size, hops * startup + round(ns_per_byte * size)) for size in sizes)
    return Measured(collective, ranks, each, points)


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(ranks=st.integers(2, 64), startup=st.integers(100, 10**5), rate=st.integers(10**8, 10**11))
def test_a_rings_nics_are_found_again(
    collective: Collective, ranks: int, startup: int, rate: int
) -> None:
    network = network_of(on_nics(collective, ranks, startup, rate))
    nic, notes = measured_nic(network, ranks, 1)
    assert abs(nic.startup_ns - startup) <= 1 + startup * 1e-3
    assert abs(nic.bytes_per_s / rate - 1) < 1e-3
    assert collective in notes[-1]


@pytest.mark.parametrize(
    ("each", "topology"), [(1, Switch(8)), (8, Rails(2, 8, Fraction(10**9), 5))]
)
def test_a_cluster_has_them_where_it_was_measured(each: int, topology: Switch | Rails) -> None:
    nic = Nic(Fraction(7), 7, each, message_ns=7)
    cluster = Cluster("c", "s", 2 if each > 1 else 8, topology, nic)
    assert with_measured_nics(cluster) == (cluster, ())
    network = network_of(on_nics("all_gather", cluster.workers, 5000, 10**9, each))
    found, _ = with_measured_nics(replace(cluster, network=network))
    assert (found.nic.startup_ns, found.nic.per_machine, found.nic.message_ns) == (5000, each, 0)
    assert abs(found.nic.bytes_per_s / 10**9 - 1) < 1e-3
