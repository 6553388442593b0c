"""Closed forms are what a transfer-by-transfer replay counts: steps, volume and additions."""

from fractions import Fraction
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.collectives import Collective, Fabric
from planner.families.collectives.exchange import (
    bml_on,
    direct_on,
    halving_doubling_on,
    hierarchical_on,
    tensors_on,
    tree_groups,
)
from planner.families.collectives.ring import bruck_cost, bruck_program, gray_cycle, ring_on
from planner.model.topologies import BCube
from tests.collectives import algorithms
from tests.collectives.pricing import cost_of
from tests.collectives.replay import Replay, Transfer

BCUBES = [BCube(*pair) for pair in ((2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 4))]
SMALL = [bcube for bcube in BCUBES if bcube.servers <= 16]


def agree(formula: Collective, replay: Replay) -> None:
    assert formula.servers == replay.servers
    assert formula.steps == replay.steps
    assert formula.volume == replay.volume
    assert formula.reduced == replay.reduced


@pytest.mark.parametrize("bcube", SMALL, ids=str)
def test_bml(bcube: BCube) -> None:
    agree(bml_on(bcube), algorithms.bml(bcube))


@pytest.mark.parametrize("bcube", BCUBES, ids=str)
def test_ring_along_the_gray_code(bcube: BCube) -> None:
    agree(ring_on(bcube), algorithms.ring(list(gray_cycle(bcube)), bcube))


@pytest.mark.parametrize("bcube", [*BCUBES, BCube(10, 3), BCube(2, 10), BCube(7, 4)], ids=str)
def test_the_gray_code_is_a_hamiltonian_cycle(bcube: BCube) -> None:
    cycle = list(gray_cycle(bcube))
    assert sorted(cycle) == list(range(bcube.servers))
    for place, server in enumerate(cycle):
        one, other = bcube.digits(cycle[place - 1]), bcube.digits(server)
        assert sum(a != b for a, b in zip(one, other, strict=True)) == 1


@given(st.integers(2, 12).flatmap(lambda count: st.permutations(range(count))))
def test_ring_in_any_order(order: list[int]) -> None:
    agree(ring_on(Fabric(len(order), 4)), algorithms.ring(order, None))


@pytest.mark.parametrize("servers", range(2, 21))
def test_halving_and_doubling(servers: int) -> None:
    fold = servers & (servers - 1) > 0
    formula = halving_doubling_on(Fabric(servers, 4))
    agree(formula, algorithms.halving_doubling(servers))
    assert formula.steps == 2 * (servers.bit_length() - 1) + 2 * fold


@pytest.mark.parametrize("servers", range(1, 21))
def test_bruck(servers: int) -> None:
    cost, replay = bruck_cost(servers), algorithms.bruck(servers)
    counted = replay.steps, replay.volume, replay.reduced
    assert (cost.steps, cost.volume, cost.reduced) == counted
    of_program = cost_of(bruck_program(servers))
    assert (of_program.steps, of_program.volume, of_program.reduced) == counted


@pytest.mark.parametrize("bcube", [one for one in BCUBES if one.n in (2, 4)], ids=str)
def test_halving_and_doubling_among_neighbours(bcube: BCube) -> None:
    agree(halving_doubling_on(bcube), algorithms.halving_doubling(bcube.servers, bcube))


@pytest.mark.parametrize("servers", range(2, 14))
def test_direct_exchanges(servers: int) -> None:
    fabric = Fabric(servers, 4)
    for formula in (
        direct_on("ps", fabric),
        direct_on("shuffle", fabric),
        direct_on("k_nics", fabric),
    ):
        agree(formula, algorithms.direct(servers))


@pytest.mark.parametrize(("servers", "nics"), [(2, 2), (9, 2), (8, 3), (5, 4)])
def test_k_nics(servers: int, nics: int) -> None:
    agree(direct_on("k_nics", Fabric(servers, 4, nics)), algorithms.direct(servers, nics))


@pytest.mark.parametrize("bcube", SMALL, ids=str)
def test_parameter_servers_by_the_digits(bcube: BCube) -> None:
    for formula in (direct_on("ps", bcube), direct_on("shuffle", bcube)):
        agree(formula, algorithms.routed(bcube))


def test_parameter_servers_at_the_derived_points() -> None:
    assert direct_on("ps", BCube(4, 2)).volume == Fraction(3, 2)
    assert direct_on("ps", BCube(32, 2)).volume == Fraction(31, 16)
    for n in (4, 32, 1000):
        bcube = BCube(n, 2)
        assert direct_on("ps", bcube).volume / bml_on(bcube).volume == Fraction(2 * n, n + 1)
    large = BCube(16, 4)
    assert round(float(direct_on("ps", large).volume / bml_on(large).volume), 3) == 3.75


@pytest.mark.parametrize("bcube", BCUBES, ids=str)
def test_each_pair_crosses_the_levels_in_which_it_differs(bcube: BCube) -> None:
    """Counts all crossings of ordered pairs, with no order of hops at all."""
    crossings = sum(
        a != b
        for one in range(bcube.servers)
        for other in range(bcube.servers)
        for a, b in zip(bcube.digits(one), bcube.digits(other), strict=True)
    )
    each_nic = Fraction(crossings, bcube.nics * bcube.servers)
    assert direct_on("ps", bcube).volume == 2 * each_nic


@pytest.mark.parametrize("bcube", BCUBES, ids=str)
def test_hierarchy_on_a_bcube_is_one_thread(bcube: BCube) -> None:
    agree(hierarchical_on(bcube), algorithms.one_thread(bcube))


@pytest.mark.parametrize("servers", range(2, 28))
def test_hierarchy_on_a_fat_tree(servers: int) -> None:
    fabric = Fabric(servers, 4)
    groups = tree_groups(fabric.servers, fabric.tree)
    assert prod(groups) == servers
    agree(hierarchical_on(fabric), algorithms.in_groups(groups))


@pytest.mark.parametrize("ports", [2, 4, 6, 16])
def test_groups_are_edge_pod_and_core_where_the_tree_is_full(ports: int) -> None:
    fabric = Fabric(ports**3 // 4, ports)
    assert (
        tree_groups(fabric.servers, fabric.tree)
        == (ports // 2, ports // 2, ports)
        == fabric.tree.groups
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any), st.integers(2, 6))
def test_whole_tensors(sizes: list[int], servers: int) -> None:
    in_turn = [place % servers for place in range(len(sizes))]
    formula = tensors_on(Fabric(servers, 4), sizes)
    agree(formula, algorithms.whole_tensors(in_turn, sizes, servers))


def replay_of_two() -> Replay:
    replay = Replay(2, algorithms.anywhere())
    algorithms.fill(replay, [0])
    return replay


def test_the_replay_rejects_what_is_counted_twice_or_never() -> None:
    with pytest.raises(AssertionError):
        replay_of_two().finish([0])
    twice = replay_of_two()
    for _ in range(2):
        twice.step([Transfer(0, 1, 0, 0, Fraction(1), adds=True)])
    twice.step([Transfer(1, 0, 0, 0, Fraction(1))])
    with pytest.raises(AssertionError):
        twice.finish([0])


def test_the_replay_rejects_what_is_not_held_or_not_linked() -> None:
    with pytest.raises(KeyError):
        replay_of_two().step([Transfer(0, 1, 0, "unknown", Fraction(1))])
    with pytest.raises(AssertionError):
        replay_of_two().step([Transfer(0, 1, 1, 0, Fraction(1))])
    with pytest.raises(AssertionError):
        replay_of_two().step([Transfer(0, 1, 0, 0, Fraction(1))] * 2)
    square = Replay(4, algorithms.wired(BCube(2, 2)))
    algorithms.fill(square, [0])
    with pytest.raises(AssertionError):
        square.step([Transfer(0, 3, 0, 0, Fraction(1), adds=True)])
