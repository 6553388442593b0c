"""The checker rejects every kind of plan and of schedule that is wrong."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from planner import AffineCost
from planner.families.caramel import Group, Part, Plan, Problem, check, evaluate
from planner.families.caramel.checker import check_times
from planner.model.costs import DepthCost
from planner.model.errors import InvalidPlanError
from planner.model.graphs import Graph
from tests.caramel.making import solved
from tests.iteration.making import chain

PROBLEM = Problem(
    chain((5, 10, 30), (5, 10, 20), (5, 10, 40)), AffineCost(2, Fraction(1, 2)), element_bytes=2
)
A, B, C = (
    Group((Part(2, 0, 40),)),
    Group((Part(1, 0, 20), Part(0, 0, 10))),
    Group((Part(0, 10, 30),)),
)
PLAN = Plan((A, B, C), (PROBLEM.order.backward,), PROBLEM.order.forward)


def groups(*changed: Group) -> Plan:
    return replace(PLAN, groups=changed)


def test_more_traffic_is_whole_bytes_rounded_up() -> None:
    """10 % more than 40, 30 and 20 bytes is 44, 33 and 22; 1 % more 41, 31 and 21."""
    for traffic, sizes in ((Fraction(11, 10), (44, 33, 22)), (Fraction(101, 100), (41, 31, 21))):
        priced = evaluate(PROBLEM, replace(PLAN, traffic=traffic))
        lengths = [end - start for start, end in priced.iteration.transfers]
        assert lengths == [PROBLEM.cost.cost_ns(size) for size in sizes]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (groups(A, B), r"bytes \[10, 30\) of 0 are not sent"),
        (groups(A, B, C, C), r"bytes \[10, 30\) of 0 are sent twice"),
        (groups(A, B, Group((Part(0, 8, 30),))), r"bytes \[8, 10\) of 0 are sent twice"),
        (groups(A, B, Group((Part(0, 10, 32),))), "has no bytes"),
        (groups(A, B, Group((Part(0, 10, 10), *C.parts))), "has no bytes"),
        (groups(A, B, Group((Part(3, 0, 2),)), C), "no parameter 3"),
        (groups(A, B, Group((Part(-1, 0, 2),)), C), "no parameter -1"),
        (groups(A, B, C, Group(())), "carries nothing"),
        (groups(A, Group((*B.parts[:1], Part(0, 0, 9))), Group((Part(0, 9, 30),))), "cut inside"),
        (groups(A, B, replace(C, kind="push")), "expected an all-reduce"),
        (groups(A, B, replace(C, algorithm="ring")), "expected an all-reduce"),
        (groups(A, B, replace(C, depth=0)), "depth 0"),
        (groups(A, B, replace(C, not_before_ns=-1)), "time >= 0"),
        (replace(PLAN, backward_orders=()), "at least one order"),
        (replace(PLAN, backward_orders=(PROBLEM.order.backward[::-1],)), "depends on"),
        (replace(PLAN, backward_orders=(PROBLEM.order.backward[:-1],)), "do not run"),
        (replace(PLAN, backward_orders=((*PROBLEM.order.backward, 3),)), "given twice"),
        (replace(PLAN, backward_orders=((*PROBLEM.order.backward, 0),)), "no backward op"),
        (replace(PLAN, backward_orders=((*PROBLEM.order.backward, 6),)), "no backward op"),
        (replace(PLAN, forward_order=PROBLEM.order.forward[::-1]), "depends on"),
        (replace(PLAN, traffic=Fraction(1, 2)), "at least 1"),
    ],
)
def test_wrong_plans(plan: Plan, message: str) -> None:
    check(PROBLEM, PLAN)
    with pytest.raises(InvalidPlanError, match=message):
        check(PROBLEM, plan)


def test_no_depth_is_used_that_nobody_measured_and_a_given_order_is_kept() -> None:
    """Independent backward ops: two orders are possible, one is asked for."""
    problem = replace(PROBLEM, cost=DepthCost(((1, AffineCost(1, Fraction(1))),)))
    check(problem, PLAN)
    with pytest.raises(InvalidPlanError, match="depth 2"):
        check(problem, groups(A, B, replace(C, depth=2)))
    graph = chain((1, 1, 1))
    ops = (*graph.ops, replace(graph.ops[1], name="other"))
    order = ("0/forward", "other", "0/backward")
    problem = Problem(Graph(ops, graph.parameters), AffineCost(0, Fraction(1)), op_order=order)
    plan = solved(problem).plan
    with pytest.raises(InvalidPlanError, match="not the op order"):
        check(problem, replace(plan, backward_orders=(plan.backward_orders[0][::-1],)))


BARRIER = replace(groups(B, C, A), barrier=True)
LATE = groups(A, B, replace(C, not_before_ns=1000))


@pytest.mark.parametrize(
    ("plan", "passes", "which", "start", "end", "message"),
    [
        (PLAN, "transfers", 0, -1, -1, "before the gradient of 2"),
        (PLAN, "transfers", 1, -1, -1, "before the gradient of 0|before"),
        (PLAN, "transfers", 1, 3, 3, "before the one before ends"),
        (PLAN, "transfers", 2, 1, 1, "read before it has arrived"),
        (PLAN, "transfers", 1, 0, -1, "does not take what it costs"),
        (PLAN, "forward", 0, -1, -1, "read before it has arrived"),
        (PLAN, "forward", 1, -1, -1, "before the one before ends"),
        (PLAN, "forward", 2, 0, -1, "does not take its duration"),
        (PLAN, "backward", 2, 1, 1, "backward pass waits"),
        (BARRIER, "transfers", 2, 1, 1, "forward pass has begun"),
        (LATE, "transfers", 2, -1, -1, "leaves before it may"),
    ],
)
def test_wrong_schedules(
    plan: Plan, passes: str, which: int, start: int, end: int, message: str
) -> None:
    iteration = evaluate(PROBLEM, plan).iteration
    check_times(PROBLEM, plan, iteration)
    spans = list(getattr(iteration, passes))
    spans[which] = (spans[which][0] + start, spans[which][1] + end)
    changed: Any = {passes: tuple(spans)}
    with pytest.raises(InvalidPlanError, match=message):
        check_times(PROBLEM, plan, replace(iteration, **changed))
