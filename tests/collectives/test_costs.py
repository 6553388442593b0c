"""Costs of collectives: bounds, closed forms, the count of switches, comparison and choice."""

import re
from collections.abc import Callable
from fractions import Fraction

import pytest
from bml_times import switch_counts
from hypothesis import given
from hypothesis import strategies as st

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
from planner.families.collectives.ring import ring_on
from planner.model.network import Network
from planner.model.topologies import BCube, FatTree, Rails
from tests.formats.refused import refused

bcubes = st.builds(BCube, st.integers(2, 12), st.integers(1, 4))
tensor_lists = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any)
SMALL = BCube(3, 2)


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


NETWORK = Network(Fraction(1))


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

SHAPES = ((1, 2), (1, 4), (2, 1), (3, 1), (2, 2), (4, 2), (3, 2), (5, 2), (2, 3), (3, 3), (3, 4))


@pytest.mark.parametrize(("hosts", "accelerators"), [*SHAPES, (2, 4), (4, 4)])
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
