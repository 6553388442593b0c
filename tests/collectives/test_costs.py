"""Costs of collectives: bounds, closed forms, comparison and choice, and what was measured."""

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
from bml_times import switch_counts
from hypothesis import given
from hypothesis import strategies as st
from leaving_out import from_smaller, ranks_left_out, sizes_left_out, summary

from planner.families.collectives import (
    COLLECTIVES,
    RAIL_PROGRAMS,
    RAILS,
    Fabric,
    collective,
    compare,
    lower_bound,
    program,
)
from planner.families.collectives.exchange import bml_on, halving_doubling_on, tree_groups
from planner.families.collectives.prediction import (
    measured_nic,
    predicted,
    range_note,
    with_measured_nics,
)
from planner.families.collectives.ring import ring_on
from planner.model.clusters import Cluster, Nic
from planner.model.costs import TableCost
from planner.model.measured import COLLECTIVES as MEASURED
from planner.model.measured import Collective, Link, Measured, MeasuredNetwork
from planner.model.network import Network
from planner.model.topologies import BCube, FatTree, Rails, Switch
from tests.formats.refused import refused

bcubes = st.builds(BCube, st.integers(2, 12), st.integers(1, 4))
tensor_lists = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any)
SMALL, NETWORK = BCube(3, 2), Network(Fraction(1))


@given(bcubes, tensor_lists)
def test_nothing_beats_the_bound_and_some_meet_it(bcube: BCube, tensors: list[int]) -> None:
    for one in compare(bcube, tensors=tensors):
        least = lower_bound(one.servers, one.nics, bcube.k if one.topology == "bcube" else 1)
        assert one.volume >= least.volume
        assert one.reduced >= least.reduced
        assert one.steps >= least.steps
    found = {one.name: one for one in compare(bcube)}
    bound, single = lower_bound(bcube.servers, bcube.k, bcube.k), lower_bound(bcube.servers)
    assert found["bml_bcube"].volume == found["k_nics_fattree"].volume == bound.volume
    assert found["bml_bcube"].reduced == bound.reduced
    assert found["bml_bcube"].steps == 2 * bcube.k == 2 * bound.steps
    for name in ("ring_fattree", "ps_fattree", "shuffle_fattree", "hierarchical_fattree"):
        assert found[name].volume == single.volume == bcube.k * bound.volume
        assert found[name].reduced == single.reduced
    assert found["ps_bcube"].volume == Fraction(2 * (bcube.n - 1), bcube.n)


def test_switches_of_the_paper_and_of_networks_that_can_be_built() -> None:
    testbed = switch_counts(BCube(3, 2))
    assert (testbed.bcube, testbed.fat_tree, testbed.k_nics) == (6, 15, 30)
    assert (testbed.tree, testbed.buildable) == (FatTree(4), False)
    small = switch_counts(BCube(4, 2))
    assert (small.bcube, small.fat_tree, small.tree, small.buildable) == (8, 20, FatTree(4), True)
    large = switch_counts(BCube(32, 2))
    assert (large.bcube, large.fat_tree, large.k_nics) == (64, 160, 320)
    assert (large.tree, large.tree.switches, large.buildable) == (FatTree(16), 320, True)
    assert Fabric(1024, 16).switches == 320
    assert [Fabric(9, ports, 2).switches for ports in (3, 4, 45, 46)] == [30, 24, 2, 2]


@pytest.mark.parametrize(
    ("make", "path", "message"),
    [
        (lambda: bml_on(SMALL).time_ns(NETWORK, -1), "gradient_bytes", ">= 0, got -1"),
        (lambda: bml_on(SMALL).time_ns(NETWORK, 2**62 + 1), "gradient_bytes", f"<= {2**62}, got"),
        (lambda: bml_on(SMALL).time_ns(NETWORK, 2**62), "gradient_bytes", "must fit in 63 bits"),
        (lambda: Fabric(1, 4, 1), "servers", "expected an integer >= "),
        (lambda: Fabric(2, 1, 1), "ports", "expected an integer >= "),
        (lambda: Fabric(2, 4, 0), "nics", "expected an integer >= "),
        (lambda: lower_bound(0, 1, 1), "servers", ">= 1, got 0"),
        (lambda: lower_bound(2, 0, 1), "nics", ">= 1, got 0"),
        (lambda: lower_bound(2, 1, 0), "diameter", ">= 1, got 0"),
        (lambda: halving_doubling_on(BCube(6, 2)), "n", "power of two, got 6"),
        (lambda: collective("ps_tensors_fattree", SMALL), "tensors", "without their sizes"),
        (lambda: collective("bml_bcub", SMALL), "method", "did you mean 'bml_bcube'"),
        (lambda: compare(SMALL, tensors=[]), "tensors", "at least one element, got an empty"),
        (lambda: compare(SMALL, tensors=[0, 0]), "tensors", "expected at least one byte, got 0"),
        (lambda: compare(SMALL, tensors=[1, -1]), "tensors[1]", ">= 0, got -1"),
        (lambda: compare(SMALL, tensors=[2**62] * 2), "tensors", "bytes must fit in 63 bits"),
        (lambda: compare(SMALL, tensors=7), "tensors", "expected an array, got 7"),  # type: ignore[arg-type]
    ],
)
def test_what_means_nothing_is_refused(make: Callable[[], object], path: str, message: str) -> None:
    with refused(path, re.escape(message)):
        make()


def test_what_does_not_apply_is_left_out() -> None:
    names = set(COLLECTIVES)
    assert {one.name for one in compare(BCube(4, 2))} == names - {"ps_tensors_fattree"}
    without = names - {"halving_doubling_bcube"}
    assert {one.name for one in compare(SMALL, tensors=[1])} == without


@pytest.mark.parametrize(("n", "k"), [(2, 56), (2**30, 2), (2**62, 1)])
def test_the_largest_networks(n: int, k: int) -> None:
    found = compare(BCube(n, k), tensors=[1, 2])
    assert all(one.volume > 0 for one in found)
    assert ring_on(BCube(n, k)).steps == 2 * (n**k - 1)


# --- closed forms: of programs that keep to the network's links, at derived points, by hand

BCUBES = [BCube(*pair) for pair in ((2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 5))]


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name.endswith("bcube")])
@pytest.mark.parametrize("bcube", BCUBES, ids=str)
def test_programs_on_a_bcube_keep_to_its_links(bcube: BCube, name: str) -> None:
    """A NIC of level l reaches servers that differ in digit l only: rings follow a Gray code."""
    if name.startswith("halving") and bcube.n not in (2, 4):
        return
    for one in program(name, bcube).messages():
        pairs = [
            [server // bcube.n**level % bcube.n for server in (one.sender, one.receiver)]
            for level in range(bcube.k)
        ]
        assert [level for level, (a, b) in enumerate(pairs) if a != b] == [one.link]


@pytest.mark.parametrize("servers", range(2, 21))
def test_folded_servers_send_and_get_a_whole_gradient_more(servers: int) -> None:
    core = 1 << servers.bit_length() - 1
    fold = int(servers > core)
    found, share = halving_doubling_on(Fabric(servers, 4)), Fraction(core - 1, core)
    assert found.steps == 2 * (servers.bit_length() - 1) + 2 * fold
    assert (found.volume, found.reduced) == (2 * share + 2 * fold, share + fold)


@pytest.mark.parametrize("ports", [2, 4, 6, 16])
def test_groups_are_edge_pod_and_core_where_the_tree_is_full(ports: int) -> None:
    tree = Fabric(ports**3 // 4, ports).tree
    assert tree_groups(ports**3 // 4, tree) == (ports // 2, ports // 2, ports) == tree.groups


# --- on rails: accelerators with links within hosts and a NIC each

SHAPES = ((1, 2), (1, 4), (2, 1), (3, 1), (2, 2), (4, 2), (3, 2), (5, 2), (2, 3), (3, 3), (4, 4))


@pytest.mark.parametrize(("hosts", "accelerators"), SHAPES)
def test_levels_meet_the_bound_of_a_host(hosts: int, accelerators: int) -> None:
    rails = Rails(hosts, accelerators, Fraction(10**15))
    between = lower_bound(hosts, accelerators).volume / 2
    for name, hops in RAILS.items():
        if name == "halving_doubling" and {3, 5} & {hosts, accelerators}:
            continue
        volume = sum(hop.nic for hop in hops(rails))
        assert volume >= between
        if name in {"hierarchical", "halving_doubling"}:
            assert volume == between
        far = [one for one in RAIL_PROGRAMS[name](rails).messages() if one.link]
        assert all(one.sender // accelerators != one.receiver // accelerators for one in far)
        # A ring of two accelerators changes rails once where the number of hosts is odd.
        if name not in {"ps", "shuffle"} and not (accelerators == 2 and hosts % 2):
            assert all((one.sender - one.receiver) % accelerators == 0 for one in far)


# ---
# Costs among numbers of ranks, measured or not, and the NICs they tell of.


SIZES = tuple(2**power for power in range(10, 31, 2))


def ring(ranks: int, size: int, per_host: int = 1) -> int:
    """A half along a ring of hosts: its steps, and (N-1)/N of the bytes at 20 GB/s."""
    members = ranks // per_host if ranks > per_host else ranks
    return round((members - 1) * 5000 + Fraction(ranks - 1, ranks) * size / 20)


def table(ranks: int, per_host: int = 1, collective: Collective = "all_gather") -> Measured:
    points = tuple((size, ring(ranks, size, per_host)) for size in SIZES)
    return Measured(collective, ranks, per_host, points)


def launched(ranks: int, size: int, rate: float = 150.0) -> int:
    """An all-reduce within a host: a launch of 40 us, and (N-1)/N of the bytes each way."""
    return round(40_000 + 2 * (ranks - 1) / ranks * size / rate)


def within(ranks: int, rate: float = 150.0) -> Measured:
    points = tuple((size, launched(ranks, size, rate)) for size in SIZES)
    return Measured("all_reduce", ranks, ranks, points)


def network_of(*tables: Measured, links: tuple[tuple[int, int], ...] = ()) -> MeasuredNetwork:
    pairs = tuple(Link(ranks, Fraction(rate)) for ranks, rate in links)
    return MeasuredNetwork(tables, pairs)


ACROSS = network_of(table(4), table(8), table(16))
HOSTS = network_of(table(16, 8), table(32, 8))
WITHIN = network_of(table(4, 4), table(8, 8))
LINKS = ((2, 300), (4, 32))
"""Two ranks of a host are joined by a link that is faster than the others."""


@pytest.mark.parametrize(
    ("network", "ranks", "per_host", "law", "off", "measured"),
    [
        *((ACROSS, ranks, 1, partial(ring, ranks), 1e-3, "4, 8, 16") for ranks in (2, 32, 1000)),
        (network_of(table(8)), 16, 1, partial(ring, 16), 0.02, "8"),
        (HOSTS, 80, 8, partial(ring, 80, per_host=8), 1e-3, "16, 32"),
        # Within a host the launch does not grow with the ranks, and the slowest link counts.
        (network_of(within(2)), 8, 8, partial(launched, 8), 0.02, "2"),
        (network_of(within(2), links=LINKS), 4, 4, partial(launched, 4, rate=16.0), 0.02, "2"),
        (
            network_of(within(2), within(4, 20.0), links=LINKS),
            *(8, 8, partial(launched, 8, rate=20.0), 0.05, "2, 4"),
        ),
    ],
)
def test_other_numbers_follow_the_steps_and_the_volume(
    network: MeasuredNetwork,
    ranks: int,
    per_host: int,
    law: Callable[[int], int],
    off: float,
    measured: str,
) -> None:
    (collective,) = network.collectives
    known = predicted(network, collective, ranks, per_host)
    for size, time in known.cost.points:
        assert abs(time - law(size)) <= max(4, off * law(size))
    assert known.notes == (f"{collective} among {ranks} ranks extrapolated from {measured}",)


@given(st.integers(5, 15), st.sampled_from(SIZES))
def test_between_two_tables_costs_are_between_them(ranks: int, size: int) -> None:
    network = network_of(table(4), table(16))
    known = predicted(network, "all_gather", ranks, 1)
    assert ring(4, size) - 1 <= known.cost.cost_ns(size) <= ring(16, size) + 1
    assert "interpolated between 4 and 16" in known.notes[0]


def test_a_table_of_just_that_is_taken_as_it_is_and_another_number_a_host_is_said() -> None:
    known = predicted(ACROSS, "all_gather", 8, 1)
    assert (known.cost.points, known.notes) == (table(8).points, ())
    known = predicted(HOSTS, "all_gather", 16, 4)
    assert known.cost.points == table(16, 8).points
    assert "taken for that with 8 a host" in known.notes[0]
    said = predicted(WITHIN, "all_gather", 6, 6).notes
    assert said == ("all_gather among 6 ranks interpolated between 4 and 8",)


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


Points = tuple[tuple[int, int], ...]
points = st.lists(
    st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)),
    min_size=2,
    max_size=12,
    unique_by=lambda point: point[0],
).map(lambda found: tuple(sorted(found)))


@given(
    st.dictionaries(st.integers(2, 64), points, min_size=1, max_size=4),
    st.integers(2, 256),
    st.sampled_from(MEASURED),
)
def test_costs_never_fall(tables: dict[int, Points], ranks: int, collective: Collective) -> None:
    measured = (Measured("all_reduce", count, 1, rows) for count, rows in tables.items())
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


def test_leaving_out_finds_an_error_where_there_is_one() -> None:
    line = Measured("all_gather", 4, 1, tuple((x, 1000 + x) for x in (64, 128, 512, 2**21)))
    assert [one.error for one in sizes_left_out(line)] == [0.0, 0.0]
    crooked = Measured("all_gather", 4, 1, ((64, 100), (128, 400), (256, 420)))
    (one,) = sizes_left_out(crooked)
    assert (one.predicted_ns, one.error) == (207, 207 / 400 - 1)
    network = network_of(table(4), table(8), table(16), table(32))
    for held_out in (list(from_smaller(network)), list(ranks_left_out(network))):
        assert summary(held_out) is not None
    largest = [one for one in from_smaller(network) if one.table.ranks == 32]
    assert max(abs(one.error) for one in largest) < 1e-3


LINE = ((1, 1), (2, 2))


@pytest.mark.parametrize(
    ("make", "path", "said"),
    [
        (lambda: Measured("gather", 4, 2, LINE), "collective", ""),  # type: ignore[arg-type]
        (lambda: Measured("all_reduce", 1, 2, LINE), "ranks", ""),
        (lambda: Measured("all_reduce", 4, 3, LINE), "ranks_per_host", ""),
        (lambda: Measured("all_reduce", 4, 2, LINE[:1]), "table", ""),
        (lambda: Measured("all_reduce", 4, 2, ((1, 0), (2, 1))), "table[0][1]", ""),
        (lambda: Measured("all_reduce", 4, 2, ((2, 1), (2, 2))), "table[1][0]", ""),
        (lambda: network_of(within(2), links=((2, 0),)), "bytes_per_s", ""),
        (lambda: network_of(within(2), links=((1, 5),)), "ranks", ""),
        (lambda: network_of(within(2), links=((4, 5), (2, 6))), "links[1].ranks", ""),
        (lambda: network_of(table(4), table(4)), None, "two tables among 4 ranks"),
        (lambda: predicted(WITHIN, "all_gather", 16, 8), None, "only such within a host"),
    ],
)
def test_bad_tables_are_refused(make: Callable[[], object], path: str | None, said: str) -> None:
    with refused(path, said):
        make()


# --- NICs over which a ring takes what was measured


def on_nics(collective: Collective, ranks: int, startup: int, rate: int, each: int = 1) -> Measured:
    """Return the time of a ring on NICs of `rate` bytes/s, with several ranks a host."""
    hops = (ranks - 1) * (2 if collective == "all_reduce" else 1)
    ns_per_byte = Fraction(hops * 10**9, ranks * rate)
    points = tuple((size, hops * startup + round(ns_per_byte * size)) for size in SIZES)
    return Measured(collective, ranks, each, points)


@pytest.mark.parametrize("collective", MEASURED)
@given(ranks=st.integers(2, 64), startup=st.integers(100, 10**5), rate=st.integers(10**8, 10**11))
def test_nics_are_found_again(collective: Collective, ranks: int, startup: int, rate: int) -> None:
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
