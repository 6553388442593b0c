"""Packings of spanning trees, against all spanning trees, and by their own proof."""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse.csgraph import minimum_spanning_tree

from planner.families.bml import Damage, Failures
from planner.families.bml.packing import Packing, few_trees, pack
from planner.families.bml.trees import Edge, SurvivingNetwork
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline
from tests.bml.networks import (
    connected,
    damaged_networks,
    distances,
    hops_of,
    joined,
    links_left,
    single_failures,
)
from tests.bml.packing_checker import check_packing, least_load


def lost(n: int, k: int, *nics: tuple[int, int], dead: Iterable[int] = ()) -> Damage:
    return Damage(BCube(n, k), Failures(frozenset(dead), frozenset(nics)))


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    damage = Damage(*draw(damaged_networks()))
    assume(damage.living > 1)
    return damage


def hops_left(damage: Damage) -> list[Edge]:
    return hops_of(links_left(damage.bcube, damage.failed))


@pytest.mark.parametrize(("n", "k"), [(2, 1), (7, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3)])
def test_intact(n: int, k: int) -> None:
    damage = lost(n, k)
    packing = pack(damage, NEVER)
    check_packing(damage, packing)
    servers = damage.living
    assert packing.load == packing.bound == Fraction(2 * (servers - 1), damage.bcube.nics)
    # BML's trees: some root is within k hops of all.
    for tree in packing.trees:
        links = joined(tree)
        assert min(max(distances(links, root).values()) for root in range(servers)) <= k


def by_enumeration(damage: Damage) -> float:
    """The least load by a linear program over all spanning trees."""
    hops = hops_left(damage)
    nics = sorted({nic for a, b, level in hops for nic in [(a, level), (b, level)]})
    columns = []
    for tree in combinations(hops, damage.living - 1):
        links = joined(tree)
        if len(links) == damage.living and connected(links):
            used = Counter(nic for a, b, level in tree for nic in [(a, level), (b, level)])
            columns.append([used[nic] for nic in nics])
    answer = linprog(
        [0] * len(columns) + [1],
        A_ub=[[*row, -1] for row in np.array(columns).T],
        b_ub=[0] * len(nics),
        A_eq=[[1] * len(columns) + [0]],
        b_eq=[1],
    )
    return float(answer.fun)


@pytest.mark.parametrize(
    "damage",
    [
        lost(2, 2),
        lost(2, 2, dead=[3]),
        lost(2, 2, (0, 0)),
        lost(3, 1),
        lost(5, 1),
        lost(2, 3),
        lost(2, 3, (0, 0), (3, 1), (6, 2)),
        lost(2, 3, (0, 0), dead=[5]),
        lost(3, 2, dead=[0, 4, 8]),
        lost(3, 2, (4, 1), (5, 1), dead=[0, 1]),
        lost(4, 2, (13, 0), dead=range(9)),
    ],
)
def test_it_is_the_best_of_all_packings(damage: Damage) -> None:
    assert float(least_load(damage)) == pytest.approx(by_enumeration(damage), abs=1e-7)


@pytest.mark.slow
@settings(max_examples=40)
@given(damages(), st.data())
def test_any_damage_is_planned_optimally_from_any_trees(
    damage: Damage, data: st.DataObject
) -> None:
    best = least_load(damage)
    assert best >= damage.load_bound()
    hops = hops_left(Damage(damage.bcube, Failures()))
    trees = data.draw(st.lists(st.lists(st.sampled_from(hops)).map(tuple), min_size=1, max_size=3))
    assert least_load(damage, start=trees) == best


@settings(max_examples=60)
@given(damages(), st.sampled_from([1e-9, 0.004, 0.01]))
def test_a_packing_and_a_bound_at_any_time(damage: Damage, seconds: float) -> None:
    packing = pack(damage, Deadline(seconds))
    check_packing(damage, packing)
    assert packing.timed_out <= (packing.load > packing.bound)


def test_the_time_runs_out() -> None:
    damage = lost(4, 2, dead=[0])
    packing = pack(damage, Deadline(1e-9))
    check_packing(damage, packing)
    assert packing.timed_out
    assert packing.load > packing.bound == Fraction(14, 15)
    line = (0, 1, 0), (1, 2, 0), (2, 3, 0)
    assert pack(lost(4, 1), Deadline(1e-9), start=[line]).trees == (line,)


def test_without_simple_fractions_the_load_is_near() -> None:
    damage = lost(3, 3, (0, 0))
    packing = pack(damage, NEVER)
    check_packing(damage, packing)
    assert packing.bound == Fraction(13, 20)
    assert packing.bound <= packing.load < packing.bound * (1 + Fraction(1, 10**8))
    assert not packing.timed_out


def test_a_solver_that_gives_up_leaves_a_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(*_: object, **__: object) -> OptimizeResult:
        return OptimizeResult(status=4)

    monkeypatch.setattr("scipy.optimize.linprog", no_answer)
    damage = lost(3, 2, dead=[0])
    packing = pack(damage, NEVER)
    check_packing(damage, packing)
    assert packing.bound == Fraction(7, 8) < packing.load
    assert not packing.timed_out


def test_a_server_alone_has_nothing_to_send() -> None:
    damage = lost(2, 2, dead=[0, 1, 3])
    packing = pack(damage, NEVER)
    check_packing(damage, packing)
    assert packing == Packing(((),), (Fraction(1),), Fraction(0), Fraction(0), timed_out=False)


# --- spanning trees of least price, and few trees, made one after the other


@settings(max_examples=80)
@given(damages(), st.data())
def test_spanning_trees_are_cheapest(damage: Damage, data: st.DataObject) -> None:
    network = SurvivingNetwork(damage)
    prices = data.draw(
        st.lists(st.integers(0, 9), min_size=len(network.nics), max_size=len(network.nics))
    )
    root = data.draw(st.integers(0, len(network.servers) - 1))
    tree, cost = network.tree(prices, root)
    price = dict(zip(network.nics, prices, strict=True))
    place = {server: number for number, server in enumerate(network.servers)}
    dense = np.zeros((len(place), len(place)))
    for one, other, level in hops_left(damage):
        # 1 more a hop, as scipy takes a 0 for no hop.
        dense[place[one], place[other]] = price[one, level] + price[other, level] + 1
    hops = len(place) - 1
    assert cost == minimum_spanning_tree(dense).sum() - hops
    assert connected(joined(tree))
    assert len(tree) == hops
    degrees = network.degrees(tree)
    assert sum(a * b for a, b in zip(degrees, prices, strict=True)) == cost
    assert sum(degrees) == 2 * hops


@settings(max_examples=60)
@given(damages(), st.data())
def test_equal_prices_give_trees_of_shortest_ways(damage: Damage, data: st.DataObject) -> None:
    network = SurvivingNetwork(damage)
    root = data.draw(st.integers(0, len(network.servers) - 1))
    tree, _ = network.tree([1] * len(network.nics), root)
    start = network.servers[root]
    assert distances(joined(tree), start) == distances(
        links_left(damage.bcube, damage.failed), start
    )


@pytest.mark.parametrize("failed", single_failures(BCube(4, 2))[::7])
def test_few_trees_are_a_packing_not_far_from_the_best(failed: Failures) -> None:
    damage = Damage(BCube(4, 2), failed)
    few = few_trees(damage, 64, NEVER)
    check_packing(damage, few)
    best = pack(damage, NEVER)
    assert few.bound <= best.bound <= few.load < best.load * Fraction(5, 4)
    assert not few.timed_out
    hasty = few_trees(damage, 64, Deadline(1e-9))
    check_packing(damage, hasty)
    assert len(hasty.trees) == 1
