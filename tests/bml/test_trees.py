"""Trees are rooted where they are least high, and plans made of them are right."""

from collections import defaultdict
from fractions import Fraction
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.bml import (
    CheckerContext,
    Damage,
    Failures,
    Problem,
    Schedule,
    TreePlan,
    check,
    evaluate,
    solve,
)
from planner.families.bml.checker import check_complete, check_piece
from planner.families.bml.packing import few_trees
from planner.families.bml.trees import Tree, root_at_centre, trees_of
from planner.model.errors import InvalidPlanError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError
from tests.bml.networks import damaged_networks, distances, joined
from tests.bml.plans import all_transfers, detoured, spanning_trees, tree_planned


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    bcube, failed = draw(damaged_networks(most=2))
    assume(Damage(bcube, failed).living > 1)
    return draw(spanning_trees(bcube, failed))


@given(trees())
def test_the_root_is_a_centre(hops: Tree) -> None:
    rooted, links = root_at_centre(hops), joined(hops)
    heights = {server: max(distances(links, server).values()) for server in links}
    centres = [server for server, high in heights.items() if high == min(heights.values())]
    assert rooted.root in centres
    assert max(branch.step for branch in rooted.branches) + 1 == min(heights.values())


@given(trees(), st.data())
def test_a_rooted_tree_has_the_same_hops_in_any_order(hops: Tree, data: st.DataObject) -> None:
    """Each server but the root sends once, as soon as all below it have, over its own hop."""
    rooted = root_at_centre(hops)
    assert sorted(
        (min(branch.sender, branch.receiver), max(branch.sender, branch.receiver), branch.level)
        for branch in rooted.branches
    ) == sorted((min(hop[:2]), max(hop[:2]), hop[2]) for hop in hops)
    sends = {branch.sender: branch.step for branch in rooted.branches}
    assert len(sends) == len(hops)
    assert rooted.root not in sends
    arrivals: dict[int, list[int]] = defaultdict(list)
    for one in rooted.branches:
        arrivals[one.receiver].append(one.step)
    for server, step in sends.items():
        assert step == max(arrivals[server], default=-1) + 1
    turned = [(other, one, level) for one, other, level in data.draw(st.permutations(hops))]
    again = root_at_centre(turned)
    assert again.root == rooted.root
    assert set(again.branches) == set(rooted.branches)


@given(tree_planned())
def test_plans_of_trees_are_right(planned: tuple[Problem, TreePlan]) -> None:
    problem, plan = planned
    damage = Damage(problem.bcube, problem.failed)
    context = CheckerContext(damage.bcube, damage.dead, damage.down)
    transfers = all_transfers(plan)
    check_complete(context, plan, transfers)
    for piece in range(plan.pieces):
        check_piece(context, plan, 0, piece)
        assert plan.owner(0, piece) == plan.trees[piece].root
    assert len(transfers) == 2 * plan.pieces * (damage.living - 1)
    for server in range(plan.bcube.servers):
        mine = list(plan.transfers(server))
        stages = ("aggregate", "broadcast")
        assert mine == sorted(mine, key=lambda one: (stages.index(one.stage), one.step))


@pytest.mark.slow
@given(detoured())
def test_trees_of_a_schedule_make_a_plan_that_is_right(planned: tuple[Problem, Schedule]) -> None:
    """Its pieces in use, each with an equal share: the same NICs carry as much."""
    problem, schedule = planned
    damage = Damage(problem.bcube, problem.failed)
    assume(damage.living > 1)
    found = trees_of(schedule)
    assert len(found) == schedule.threads * schedule.pieces - len(schedule.left_out)
    shares = (Fraction(1, len(found)),) * len(found)
    plan = TreePlan(damage.bcube, tuple(map(root_at_centre, found)), shares)
    check(CheckerContext(damage.bcube, damage.dead, damage.down), plan)
    assert evaluate(problem, plan).load == evaluate(problem, schedule).load


@given(tree_planned())
def test_trees_of_networks_too_large_to_replay_are_followed(
    planned: tuple[Problem, TreePlan],
) -> None:
    """Their hops need not come closer to the root digit by digit, as those of Algorithm 1 do."""
    problem, plan = planned
    damage = Damage(problem.bcube, problem.failed)
    context = CheckerContext(damage.bcube, damage.dead, damage.down)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COMPLETE_CELLS", "WHOLE_SERVERS"):
            patch.setattr(f"planner.families.bml.checker.{name}", 1)
        assert check(context, plan) == "pieces"


@pytest.mark.slow
def test_trees_of_thousands_of_servers_are_planned_in_time() -> None:
    problem = Problem(BCube(65, 2), Network(Fraction(1)), 156, element_bytes=4)
    result = solve(problem, method="trees", time_limit=120)
    assert result.objective_ns is not None
    assert result.lower_bound_ns is not None
    assert result.objective_ns >= result.lower_bound_ns > 0


def test_a_tree_that_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves with every look at it: a further tree is given up within, the first not."""
    looks = count()
    clock = SimpleNamespace(monotonic=lambda: float(next(looks)))
    monkeypatch.setattr("planner.solving.deadline.time", clock)
    trees = few_trees(Damage(BCube(4, 3), Failures()), 50, Deadline(200))
    assert 1 <= len(trees.trees) < 50
    assert trees.timed_out
    assert next(looks) < 210
    assert len(few_trees(Damage(BCube(4, 3), Failures()), 50, Deadline(1)).trees) == 1
    with pytest.raises(TimeUpError):
        few_trees(Damage(BCube(4, 3), Failures(), Deadline(100)), 50, Deadline(1))


@settings(max_examples=60)
@given(tree_planned(), st.data())
def test_plans_that_lack_a_hop_are_refused(
    planned: tuple[Problem, TreePlan], data: st.DataObject
) -> None:
    problem, plan = planned
    damage = Damage(problem.bcube, problem.failed)
    context = CheckerContext(damage.bcube, damage.dead, damage.down)
    transfers = all_transfers(plan)
    del transfers[data.draw(st.integers(0, len(transfers) - 1))]
    with pytest.raises(InvalidPlanError):
        check_complete(context, plan, transfers)
