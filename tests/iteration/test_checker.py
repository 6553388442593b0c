"""Broken plans, each refused with the place that is wrong."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.iteration import Plan, Problem, Transfer, check, evaluate
from planner.families.iteration.evaluation import check_room, check_times
from planner.model.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.model.graphs import Graph, Op, Parameter
from planner.solving.transfers import Kind
from tests.iteration.making import on_switch, one

F1, F2, B2, B1, B0 = range(5)
GRAPH = Graph(
    (
        Op("f1", 10, "forward"),
        Op("f2", 20, "forward", ("f1",)),
        Op("b2", 30, "backward", ("f2",)),
        Op("b1", 20, "backward", ("b2",)),
        Op("b0", 5, "backward", ("b2",)),
    ),
    (Parameter("w1", 8, ("b1",), ("f1",)), Parameter("w2", 10, ("b2", "b0"), ("f2",))),
)
PROBLEM = Problem(GRAPH, on_switch(4, 1), element_bytes=4)
ORDERS = {"backward_orders": ((B2, B1, B0),), "forward_order": (F1, F2)}


def plan(*transfers: Transfer, **options: object) -> Plan:
    return Plan("ps", transfers, **{**ORDERS, **options})  # type: ignore[arg-type]


WHOLE = plan(
    one("all_reduce", (0, 0, 8)), one("all_reduce", (1, 0, 4)), one("all_reduce", (1, 4, 10))
)
HALVES = plan(
    one("push", (0, 0, 8)),
    one("push", (1, 0, 4)),
    one("push", (1, 4, 10)),
    one("pull", (0, 0, 8), (1, 0, 8)),
    one("pull", (1, 8, 10)),
)
GOOD = {"replicated": WHOLE, "sharded": HALVES}


@pytest.mark.parametrize("mode", GOOD)
def test_they_are_plans_before_they_are_broken(mode: str) -> None:
    good = GOOD[mode]
    assert good.mode == mode
    check(PROBLEM, good)
    check_room(PROBLEM, good)
    check_times(PROBLEM, good, evaluate(PROBLEM, good).iteration)


def without(good: Plan, number: int) -> Plan:
    return plan(*good.transfers[:number], *good.transfers[number + 1 :])


def instead(good: Plan, number: int, transfer: Transfer) -> Plan:
    return plan(*good.transfers[:number], transfer, *good.transfers[number + 1 :])


def swapped(good: Plan, first: int, second: int) -> Plan:
    sent = list(good.transfers)
    sent[first], sent[second] = sent[second], sent[first]
    return plan(*sent)


BROKEN = {
    "missing all-reduce": without(WHOLE, 1),
    "missing bytes of an all-reduce": instead(WHOLE, 2, one("all_reduce", (1, 8, 10))),
    "missing last bytes": instead(WHOLE, 2, one("all_reduce", (1, 4, 8))),
    "reduced twice": plan(*WHOLE.transfers, one("all_reduce", (0, 0, 8))),
    "reduced twice in part": instead(WHOLE, 2, one("all_reduce", (1, 0, 10))),
    "reduced twice at once": instead(WHOLE, 0, one("all_reduce", (0, 0, 8), (0, 0, 8))),
    "nothing at all": plan(),
    "an empty all-reduce": plan(*WHOLE.transfers, one("all_reduce")),
    "an empty part": instead(WHOLE, 0, one("all_reduce", (0, 0, 0), (0, 0, 8))),
    "an empty push": plan(one("push"), *HALVES.transfers),
    "an empty pull": plan(*HALVES.transfers, one("pull")),
    "missing push": without(HALVES, 1),
    "missing pull": without(HALVES, 4),
    "missing last bytes of a pull": instead(HALVES, 4, one("pull", (1, 8, 9))),
    "missing bytes between pulls": plan(
        *HALVES.transfers[:3], one("pull", (0, 0, 8), (1, 0, 4)), one("pull", (1, 8, 10))
    ),
    "pulled twice": plan(*HALVES.transfers, one("pull", (0, 0, 8))),
    "pulled twice in part": instead(HALVES, 4, one("pull", (1, 4, 10))),
    "pulled backwards": instead(HALVES, 4, one("pull", (1, 10, 8))),
    "pulled more than there is": instead(HALVES, 4, one("pull", (1, 8, 12))),
    "pushed more than there is": instead(HALVES, 2, one("push", (1, 4, 12))),
    "pulled before pushed": swapped(HALVES, 2, 3),
    "all pulls before all pushes": plan(*HALVES.transfers[3:], *HALVES.transfers[:3]),
    "pull without push": plan(*WHOLE.transfers, one("pull", (0, 0, 8))),
    "push without pull": instead(WHOLE, 0, one("push", (0, 0, 8))),
    "pushed and reduced in part": plan(
        one("all_reduce", (0, 0, 8), (1, 0, 4)), one("push", (1, 4, 10)), one("pull", (1, 0, 10))
    ),
    "pushed and reduced in whole": plan(*HALVES.transfers, one("all_reduce", (0, 0, 8))),
    "reduced inside an element": plan(
        one("all_reduce", (0, 0, 8)), one("all_reduce", (1, 0, 6)), one("all_reduce", (1, 6, 10))
    ),
    "pulled inside an element": plan(
        *HALVES.transfers[:3], one("pull", (0, 0, 8), (1, 0, 6)), one("pull", (1, 6, 10))
    ),
    "no such parameter": plan(*WHOLE.transfers, one("all_reduce", (2, 0, 1))),
    "no such parameter to pull": plan(*HALVES.transfers, one("pull", (2, 0, 1))),
    "a negative parameter": plan(*WHOLE.transfers, one("all_reduce", (-1, 0, 1))),
    "leaves before time began": instead(WHOLE, 0, one("all_reduce", (0, 0, 8), not_before_ns=-1)),
    "pulled before time began": instead(HALVES, 4, one("pull", (1, 8, 10), not_before_ns=-1)),
    "no such kind": instead(WHOLE, 0, one("broadcast", (0, 0, 8))),  # type: ignore[arg-type]
    "no backward order": replace(WHOLE, backward_orders=()),
    "a backward op missing": replace(WHOLE, backward_orders=((B2, B1),)),
    "a backward op twice": replace(WHOLE, backward_orders=((B2, B1, B0, B0),)),
    "a backward op too early": replace(WHOLE, backward_orders=((B1, B2, B0),)),
    "another worker's op too early": replace(WHOLE, backward_orders=((B2, B1, B0), (B0, B2, B1))),
    "a forward op missing": replace(WHOLE, forward_order=(F1,)),
    "a forward op too early": replace(WHOLE, forward_order=(F2, F1)),
    "a backward op in the forward pass": replace(WHOLE, forward_order=(F1, F2, B0)),
    "no such op": replace(WHOLE, forward_order=(F1, F2, 5)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_broken_plans_are_refused(broken: Plan) -> None:
    with pytest.raises(InvalidPlanError):
        check(PROBLEM, broken)


def test_some_pushed_and_others_all_reduced_is_refused() -> None:
    """Neither footprint would hold, nor either bound."""
    mixed = plan(one("all_reduce", (0, 0, 8)), one("push", (1, 0, 10)), one("pull", (1, 0, 10)))
    with pytest.raises(InvalidPlanError, match="some gradients are pushed, some all-reduced"):
        check(PROBLEM, mixed)


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        (plan(*HALVES.transfers[:4], one("push"), HALVES.transfers[4]), "transfers[4]"),
        (BROKEN["pushed more than there is"], "transfers[2]"),
        (instead(HALVES, 4, one("pull")), "transfers[4]"),
        (BROKEN["pulled before pushed"], "transfers[2]"),
        (plan(HALVES.transfers[0], HALVES.transfers[3]), "transfers"),
    ],
)
def test_the_place_is_one_of_the_plan(broken: Plan, place: str) -> None:
    with pytest.raises(InvalidPlanError) as raised:
        check(PROBLEM, broken)
    assert raised.value.path == place


def test_an_algorithm_the_cluster_does_not_have() -> None:
    with pytest.raises(InvalidInputError, match="ring"):
        check(PROBLEM, replace(WHOLE, algorithm="bml"))


def test_a_given_op_order_is_kept_to() -> None:
    fixed = replace(PROBLEM, op_order=("f1", "f2", "b2", "b0", "b1"))
    with pytest.raises(InvalidPlanError, match="op order"):
        check(fixed, WHOLE)
    check(fixed, replace(WHOLE, backward_orders=((B2, B0, B1),)))


def test_larger_than_there_is_room_for() -> None:
    capped = replace(PROBLEM, max_transfer_bytes=15)
    check(capped, HALVES)
    check_room(capped, WHOLE)
    with pytest.raises(BrokenConstraintError, match="16 bytes") as raised:
        check_room(capped, HALVES)
    assert (raised.value.path, raised.value.binding) == ("transfers[3]", "max_transfer_bytes")


TIMES = evaluate(PROBLEM, HALVES).iteration


def shifted(lane: str, number: int, start: int, end: int) -> Callable[[], object]:
    spans = list(getattr(TIMES, lane))
    before = spans[number]
    spans[number] = (before[0] + start, before[1] + end)
    changes: dict[str, Any] = {lane: tuple(spans)}
    return lambda: check_times(PROBLEM, HALVES, replace(TIMES, **changes))


@pytest.mark.parametrize(
    "checked",
    [
        shifted("transfers", 0, -1, -1),  # its gradient is not ready
        shifted("transfers", 1, -1, -1),  # the one before it is still on the channel
        shifted("transfers", 3, 0, -1),  # costs less than it does
        shifted("transfers", 4, 0, 1),  # costs more
        shifted("transfers", 4, 1000, 1000),  # read before it has arrived
        shifted("forward", 0, -1, -1),
        shifted("forward", 1, -1, -1),
        shifted("forward", 1, 0, 1),
        shifted("backward", 1, 0, -1),
        shifted("backward", 2, 1, 1),
        lambda: check_times(PROBLEM, HALVES, replace(TIMES, end_ns=TIMES.end_ns - 1)),
    ],
)
def test_times_that_cannot_be(checked: Callable[[], object]) -> None:
    check_times(PROBLEM, HALVES, TIMES)
    with pytest.raises(InvalidPlanError):
        checked()


def test_a_barrier_and_a_time_to_wait_for() -> None:
    late = plan(*WHOLE.transfers[:2], replace(WHOLE.transfers[2], not_before_ns=500), barrier=True)
    times = evaluate(PROBLEM, late).iteration
    check_times(PROBLEM, late, times)
    assert times.transfers[2][0] == 500
    assert times.forward[0][0] == times.transfers[2][1]
    with pytest.raises(InvalidPlanError, match="before it may"):
        check_times(PROBLEM, replace(late, barrier=False), evaluate(PROBLEM, WHOLE).iteration)
    waits = replace(WHOLE, barrier=True)
    with pytest.raises(InvalidPlanError, match="forward pass has begun"):
        check_times(PROBLEM, waits, evaluate(PROBLEM, WHOLE).iteration)


@settings(max_examples=200)
@given(st.data())
def test_a_pull_needs_the_pushes_of_its_bytes(data: st.DataObject) -> None:
    """Cut and ordered at random; the oracle goes through the bytes one by one."""
    size = data.draw(st.integers(1, 8))
    alike = data.draw(st.booleans())
    problem = replace(
        PROBLEM,
        graph=Graph(GRAPH.ops, (Parameter("w1", size, ("b1",), ("f1",)),)),
        pull_bytes=None if alike else (size + 1,),
        element_bytes=1,
    )
    moves: list[tuple[Kind, int, int]] = []
    for kind, length in (("push", size), ("pull", size if alike else size + 1)):
        cuts = data.draw(st.sets(st.integers(1, length - 1))) if length > 1 else set()
        ends = [0, *sorted(cuts), length]
        moves += [(kind, start, stop) for start, stop in pairwise(ends)]  # type: ignore[misc]
    moves = data.draw(st.permutations(moves))
    early = False
    pushed: set[int] = set()
    for kind, start, stop in moves:
        wanted = set(range(start, stop)) if alike else set(range(size))
        early |= kind == "pull" and not wanted <= pushed
        pushed |= set(range(start, stop)) if kind == "push" else set()
    given_plan = plan(*(one(kind, (0, start, stop)) for kind, start, stop in moves))
    if early:
        with pytest.raises(InvalidPlanError, match="before all of it was pushed"):
            check(problem, given_plan)
    else:
        check(problem, given_plan)
