"""Packings of spanning trees, and plans made of them, by the proof of their bound.

A tree of N'-1 hops that joins all N' living servers spans them. The proof is checked by a cheapest
spanning tree of all hops: whatever is packed, no lower load can be.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult
from scipy.sparse.csgraph import minimum_spanning_tree

from planner.families.bml import Damage, Failures, Problem, TreePlan, check, evaluate
from planner.families.bml.checker import check_complete, check_piece
from planner.families.bml.packing import Packing, few_trees, load_of, pack
from planner.families.bml.trees import Edge, Port, SurvivingNetwork, root_at_centre, trees_of
from planner.model.errors import InvalidPlanError
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from tests.bml import networks
from tests.bml.networks import connected, damaged_networks, distances, hops_of, joined, links_left
from tests.bml.plans import all_transfers, context_of, detoured, spanning_trees, tree_planned


def lost(n: int, k: int, *nics: tuple[int, int], dead: Iterable[int] = ()) -> Damage:
    return Damage(BCube(n, k), Failures(frozenset(dead), frozenset(nics)))


def least_tree(hops: Sequence[Edge], prices: Mapping[Port, int]) -> int:
    """Return the price of a cheapest spanning tree, by scipy."""
    servers = sorted({end for one, other, _ in hops for end in (one, other)})
    dense = np.zeros((len(servers), len(servers)))
    for one, other, level in hops:
        # 1 more a hop, as scipy takes a 0 for no hop.
        price = prices.get((one, level), 0) + prices.get((other, level), 0) + 1
        dense[servers.index(one), servers.index(other)] = price
    total = minimum_spanning_tree(dense).sum()
    assert total < 2**53, "floats are no longer exact"
    return int(total) - (len(servers) - 1)


def checked(damage: Damage, packing: Packing) -> Packing:
    """Assert that trees span what works, shares add up, and prices prove the bound."""
    links = links_left(damage.bcube, damage.failed)
    hops = hops_of(links)
    for tree in packing.trees:
        assert len(tree) == damage.living - 1
        assert {(min(one, other), max(one, other), level) for one, other, level in tree} <= {*hops}
        assert not tree or connected(joined(tree))
        assert not tree or joined(tree).keys() == links.keys()
    assert len(packing.weights) == len(packing.trees)
    assert min(packing.weights) > 0
    assert sum(packing.weights) == 1
    assert packing.load == load_of(packing.trees, packing.weights)
    prices = dict(packing.prices)
    assert all(price >= 0 for price in prices.values())
    whole = sum(prices.values())  # 0 where nothing is proven
    assert packing.bound == (Fraction(least_tree(hops, prices), whole) if whole else 0)
    return packing


def packed(damage: Damage, deadline: Deadline = NEVER) -> Packing:
    return checked(damage, pack(damage, deadline))


def least_load(damage: Damage, **start: Any) -> Fraction:
    """Pack, check, and return the least load of a NIC, which the packing reaches."""
    packing = checked(damage, pack(damage, NEVER, **start))
    assert packing.bound <= packing.load <= packing.bound * (1 + Fraction(1, 10**9))
    assert not packing.timed_out
    return packing.bound


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    damage = Damage(*draw(damaged_networks()))
    assume(damage.living > 1)
    return damage


@pytest.mark.parametrize(("n", "k"), [(2, 1), (7, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3)])
def test_intact(n: int, k: int) -> None:
    damage = lost(n, k)
    packing, servers = packed(damage), damage.living
    assert packing.load == packing.bound == Fraction(2 * (servers - 1), damage.bcube.nics)
    # BML's trees: some root is within k hops of all.
    for tree in packing.trees:
        links = joined(tree)
        assert min(max(distances(links, root).values()) for root in range(servers)) <= k


@pytest.mark.parametrize(
    ("damage", "load"),
    [
        (lost(2, 2, dead=[3]), 1),
        (lost(2, 2, (0, 0)), 1),
        (lost(2, 3, (0, 0), (3, 1), (6, 2)), 1),
        (lost(2, 3, (0, 0), dead=[5]), 1),
        (lost(3, 2, dead=[0, 4, 8]), Fraction(5, 6)),
        (lost(3, 2, (4, 1), (5, 1), dead=[0, 1]), Fraction(4, 3)),
        (lost(4, 2, (13, 0), dead=range(9)), 1),
        (lost(3, 3, (0, 0)), Fraction(13, 20)),  # not reached: its fractions are not simple
    ],
)
def test_it_is_the_best_of_all_packings(damage: Damage, load: Fraction) -> None:
    """Loads that a linear program over all spanning trees gave, but for the last one."""
    assert least_load(damage) == load


@pytest.mark.slow
@pytest.mark.parametrize("bcube", [BCube(3, 2), BCube(4, 2), BCube(2, 3)], ids=str)
def test_the_bound_is_reached_after_every_single_failure(bcube: BCube) -> None:
    for failed in networks.single_failures(bcube):
        damage = Damage(bcube, failed)
        assert damage.load_bound() == least_load(damage), failed


def test_a_bottleneck_between_two_halves_is_seen() -> None:
    """Of 4 links between the halves of BCube(2, 3) one is left: all sums cross it."""
    damage = lost(2, 3, (0, 2), (1, 2), (2, 2))
    assert damage.down == {(server, 2) for server in (0, 1, 2, 4, 5, 6)}
    simple = max(Fraction(2 * 7, 18), Fraction(1, damage.fewest_nics))
    assert simple < damage.load_bound() == least_load(damage) == 1


@pytest.mark.slow
@settings(max_examples=40)
@given(damages(), st.data())
def test_any_damage_is_planned_optimally_from_any_trees(
    damage: Damage, data: st.DataObject
) -> None:
    best = least_load(damage)
    assert best >= damage.load_bound()
    hops = hops_of(links_left(damage.bcube, Failures()))
    trees = data.draw(st.lists(st.lists(st.sampled_from(hops)).map(tuple), min_size=1, max_size=3))
    assert least_load(damage, start=trees) == best


@settings(max_examples=60)
@given(damages(), st.sampled_from([1e-9, 0.004, 0.01]))
def test_a_packing_and_a_bound_at_any_time(damage: Damage, seconds: float) -> None:
    packing = packed(damage, Deadline(seconds))
    assert packing.timed_out <= (packing.load > packing.bound)


def test_the_time_runs_out() -> None:
    packing = packed(lost(4, 2, dead=[0]), Deadline(1e-9))
    assert packing.timed_out
    assert packing.load > packing.bound == Fraction(14, 15)
    line = (0, 1, 0), (1, 2, 0), (2, 3, 0)
    assert pack(lost(4, 1), Deadline(1e-9), start=[line]).trees == (line,)


def test_a_solver_that_gives_up_leaves_a_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: OptimizeResult(status=4))
    packing = packed(lost(3, 2, dead=[0]))
    assert packing.bound == Fraction(7, 8) < packing.load
    assert not packing.timed_out


def test_a_server_alone_has_nothing_to_send() -> None:
    alone = lost(2, 2, dead=[0, 1, 3])
    assert alone.load_bound() == 0
    packing = packed(alone)
    assert packing == Packing(((),), (Fraction(1),), Fraction(0), Fraction(0), timed_out=False)


# --- spanning trees of least price, and few trees, made one after the other


@settings(max_examples=80)
@given(damages(), st.data())
def test_spanning_trees_are_cheapest_and_of_shortest_ways(
    damage: Damage, data: st.DataObject
) -> None:
    network, links = SurvivingNetwork(damage), links_left(damage.bcube, damage.failed)
    nics, hops = len(network.nics), len(network.servers) - 1
    prices = data.draw(st.lists(st.integers(0, 9), min_size=nics, max_size=nics))
    root = data.draw(st.integers(0, hops))
    tree, cost = network.tree(prices, root)
    assert cost == least_tree(hops_of(links), dict(zip(network.nics, prices, strict=True)))
    assert connected(joined(tree))
    assert len(tree) == hops
    degrees = network.degrees(tree)
    assert sum(a * b for a, b in zip(degrees, prices, strict=True)) == cost
    assert sum(degrees) == 2 * hops
    tree, _ = network.tree([1] * nics, root)
    start = network.servers[root]
    assert distances(joined(tree), start) == distances(links, start)


@pytest.mark.parametrize("failed", networks.single_failures(BCube(4, 2))[::7])
def test_few_trees_are_a_packing_not_far_from_the_best(failed: Failures) -> None:
    damage = Damage(BCube(4, 2), failed)
    few, best = checked(damage, few_trees(damage, 64, NEVER)), pack(damage, NEVER)
    assert few.bound <= best.bound <= few.load < best.load * Fraction(5, 4)
    assert not few.timed_out
    assert len(checked(damage, few_trees(damage, 64, Deadline(1e-9))).trees) == 1


def test_a_tree_that_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves with every look at it: a further tree is given up within, the first not."""
    looks = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(looks)))
    monkeypatch.setattr("planner.solving.deadline.time", clock)
    trees = few_trees(lost(4, 3), 50, Deadline(200))
    assert 1 <= len(trees.trees) < 50
    assert trees.timed_out
    assert next(looks) < 210
    assert len(few_trees(lost(4, 3), 50, Deadline(1)).trees) == 1
    with pytest.raises(TimeUpError):
        few_trees(Damage(BCube(4, 3), Failures(), Deadline(100)), 50, Deadline(1))


# --- trees are rooted where they are least high, and plans made of them are right


@given(damages(), st.data())
def test_a_rooted_tree_has_the_same_hops_in_any_order(damage: Damage, data: st.DataObject) -> None:
    """The root is a centre of the tree, and no server waits longer than its branches are high."""
    hops = data.draw(spanning_trees(damage.bcube, damage.failed))
    rooted, links = root_at_centre(hops), joined(hops)
    heights = {server: max(distances(links, server).values()) for server in links}
    assert heights[rooted.root] == min(heights.values())
    ends = [(*sorted((one.sender, one.receiver)), one.level) for one in rooted.branches]
    assert sorted(ends) == sorted((*sorted(hop[:2]), hop[2]) for hop in hops)
    sends = {branch.sender: branch.step for branch in rooted.branches}
    assert sends.keys() == links.keys() - {rooted.root}
    arrivals: dict[int, list[int]] = defaultdict(list)
    for one in rooted.branches:
        arrivals[one.receiver].append(one.step)
    assert all(step == max(arrivals[one], default=-1) + 1 for one, step in sends.items())
    turned = [(other, one, level) for one, other, level in data.draw(st.permutations(hops))]
    again = root_at_centre(turned)
    assert again.root == rooted.root
    assert set(again.branches) == set(rooted.branches)


@settings(max_examples=60)
@given(tree_planned(), st.data())
def test_plans_of_trees_are_right_unless_they_lack_a_hop(
    planned: tuple[Problem, TreePlan], data: st.DataObject
) -> None:
    problem, plan = planned
    context = context_of(problem.bcube, problem.failed)
    transfers = all_transfers(plan)
    check_complete(context, plan, transfers)
    for piece in range(plan.pieces):
        check_piece(context, plan, 0, piece)
        assert plan.owner(0, piece) == plan.trees[piece].root
    # In networks too large to replay trees are followed: their hops need not come closer to the
    # root digit by digit, as those of Algorithm 1 do.
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COMPLETE_CELLS", "WHOLE_SERVERS"):
            patch.setattr(f"planner.families.bml.checker.{name}", 1)
        assert check(context, plan) == "pieces"
    living = problem.bcube.servers - len(context.dead)
    assert len(transfers) == 2 * plan.pieces * (living - 1)
    for server in range(plan.bcube.servers):
        mine = list(plan.transfers(server))
        assert mine == sorted(mine, key=lambda one: (one.stage, one.step))
    del transfers[data.draw(st.integers(0, len(transfers) - 1))]
    with pytest.raises(InvalidPlanError):
        check_complete(context, plan, transfers)


@pytest.mark.slow
@given(detoured())
def test_trees_of_a_schedule_make_a_plan_that_is_right(planned: tuple[Problem, Any]) -> None:
    """Its pieces in use, each with an equal share: the same NICs carry as much."""
    problem, schedule = planned
    assume(Damage(problem.bcube, problem.failed).living > 1)
    found = trees_of(schedule)
    assert len(found) == schedule.threads * schedule.pieces - len(schedule.left_out)
    shares = (Fraction(1, len(found)),) * len(found)
    plan = TreePlan(problem.bcube, tuple(map(root_at_centre, found)), shares)
    check(context_of(problem.bcube, problem.failed), plan)
    assert evaluate(problem, plan).load == evaluate(problem, schedule).load
