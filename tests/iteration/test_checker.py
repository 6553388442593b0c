"""Broken plans and times, each refused with the place that is wrong; right times by hand.

What plans of all-reduces can break too is in tests/caramel/test_checker.py.
"""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.iteration import Plan, Problem, Transfer, check, evaluate
from planner.families.iteration.baselines import enforced
from planner.families.iteration.evaluation import check_room, check_times
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.model.graphs import Graph, Op, Parameter
from planner.solving.transfers import Kind
from tests.formats.refused import refused
from tests.iteration.making import chain, on_switch, one

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


reduced, pushed, pulled = partial(one, "all_reduce"), partial(one, "push"), partial(one, "pull")


def plan(*transfers: Transfer, barrier: bool = False) -> Plan:
    return Plan("ps", transfers, ((B2, B1, B0),), (F1, F2), barrier=barrier)


WHOLE = plan(reduced((0, 0, 8)), reduced((1, 0, 4)), reduced((1, 4, 10)))
PUSHES = pushed((0, 0, 8)), pushed((1, 0, 4)), pushed((1, 4, 10))
PULLS = pulled((0, 0, 8), (1, 0, 8)), pulled((1, 8, 10))
HALVES = plan(*PUSHES, *PULLS)


def edited(good: Plan, number: int, *sent: Transfer) -> Plan:
    """Return the plan with these transfers in the place of one of its own."""
    return plan(*good.transfers[:number], *sent, *good.transfers[number + 1 :])


ALL, EARLY, NONE = "transfers", "before all of it was pushed", "has no bytes"
SOME = "some gradients are pushed, some all-reduced"
BROKEN: list[tuple[Plan, str, str]] = [
    (edited(WHOLE, 1), ALL, "not sent"),
    (edited(HALVES, 1), ALL, "not sent"),
    (edited(HALVES, 4), ALL, "not pulled"),
    (edited(HALVES, 4, pulled((1, 4, 10))), ALL, "pulled twice"),
    (edited(HALVES, 4, pulled((1, 8, 12))), "transfers[4]", NONE),
    (edited(HALVES, 2, pushed((1, 4, 12))), "transfers[2]", NONE),
    (edited(HALVES, 4, pulled()), "transfers[4]", "carries nothing"),
    (plan(*PUSHES[:2], PULLS[0], PUSHES[2], PULLS[1]), "transfers[2]", EARLY),
    (plan(*WHOLE.transfers, pulled((0, 0, 8))), "transfers[3]", "what nobody pushed"),
    # Neither footprint would hold, nor either bound.
    (edited(WHOLE, 0, pushed((0, 0, 8))), ALL, SOME),
    (plan(WHOLE.transfers[0], pushed((1, 0, 10)), pulled((1, 0, 10))), ALL, SOME),
    (plan(*HALVES.transfers, reduced((0, 0, 8))), ALL, "sent twice"),
    (plan(*PUSHES, pulled((0, 0, 8), (1, 0, 6)), pulled((1, 6, 10))), "transfers[3]", "cut inside"),
    (plan(*HALVES.transfers, pulled((2, 0, 1))), "transfers[5]", "no parameter 2"),
    (edited(HALVES, 4, pulled((1, 8, 10), not_before_ns=-1)), "transfers[4].not_before_ns", ">= 0"),
    (edited(WHOLE, 0, reduced((0, 0, 8), not_before_ns=-1)), "transfers[0].not_before_ns", ">= 0"),
    (edited(WHOLE, 0, one("broadcast", (0, 0, 8))), "transfers[0].kind", "none"),  # type: ignore[arg-type]
    (replace(WHOLE, backward_orders=((B2, B1, B0), (B0, B2, B1))), "backward_orders[1]", "depends"),
    (replace(WHOLE, forward_order=(F1,)), "forward_order", "do not run"),
]


@pytest.mark.parametrize(("broken", "path", "message"), BROKEN)
def test_broken_plans_are_refused(broken: Plan, path: str, message: str) -> None:
    with refused(path, message, InvalidPlanError):
        check(PROBLEM, broken)


def test_what_the_problem_does_not_allow_is_refused() -> None:
    with refused("algorithm", "ring"):
        check(PROBLEM, replace(WHOLE, algorithm="bml"))
    fixed = replace(PROBLEM, op_order=("f1", "f2", "b2", "b0", "b1"))
    check(fixed, replace(WHOLE, backward_orders=((B2, B0, B1),)))
    with refused("backward_orders", "op order", InvalidPlanError):
        check(fixed, WHOLE)
    capped = replace(PROBLEM, max_transfer_bytes=15)
    check(capped, HALVES)
    check_room(capped, WHOLE)
    with pytest.raises(BrokenConstraintError, match="16 bytes") as raised:
        check_room(capped, HALVES)
    assert (raised.value.path, raised.value.binding) == ("transfers[3]", "max_transfer_bytes")


def test_times_that_cannot_be() -> None:
    """Those that transfers of gradients alone can have too are in tests/caramel/test_checker.py."""
    for good, mode in ((WHOLE, "replicated"), (HALVES, "sharded")):
        assert good.mode == mode
        check(PROBLEM, good)
        check_room(PROBLEM, good)
        check_times(PROBLEM, good, evaluate(PROBLEM, good).iteration)
    times = evaluate(PROBLEM, HALVES).iteration
    wrong = [replace(times, end_ns=times.end_ns - 1)]
    for number, more in ((3, -1), (4, 1)):
        spans = list(times.transfers)
        spans[number] = (spans[number][0], spans[number][1] + more)
        wrong.append(replace(times, transfers=tuple(spans)))
    for each in wrong:
        with pytest.raises(InvalidPlanError):
            check_times(PROBLEM, HALVES, each)


def test_a_barrier_and_a_time_to_wait_for() -> None:
    late = plan(*WHOLE.transfers[:2], replace(WHOLE.transfers[2], not_before_ns=500), barrier=True)
    times = evaluate(PROBLEM, late).iteration
    check_times(PROBLEM, late, times)
    assert times.transfers[2][0] == 500
    assert times.forward[0][0] == times.transfers[2][1]


def test_times_by_hand() -> None:
    """Half a nanosecond a byte and 10 ns to start each way, between two machines."""
    problem = Problem(chain((40, 20, 100), (60, 30, 200)), on_switch(2, 10))
    w1, w2 = (0, 0, 100), (1, 0, 200)
    # From 30 to 140, to 200, to 260, when f1 starts, and to 370, when f2 starts.
    sent = [pushed(w2), pushed(w1), pulled(w1), pulled(w2)]
    found = evaluate(problem, enforced(problem, "ring", sent))
    pushes, pulls = [tuple(times) for times in found.times[:2]], [*map(tuple, found.times[2:])]
    assert pushes == [(30, 30, 140, 90), (50, 140, 200, 50)]
    assert pulls == [(200, 200, 260, 50), (140, 260, 370, 90)]
    assert found.iteration_ns == 370 + 60
    assert found.startup_ns == 4 * 10
    assert found.communication_ns == 110 + 60 + 60 + 110
    assert found.stall_ns == 430 - 150


def test_a_pull_between_pushes_waits_for_the_backward_pass() -> None:
    """No optimiser steps before: w2 is pushed by 50, when b1 still runs until 70."""
    problem = Problem(chain((40, 40, 100), (60, 30, 20)), on_switch(2, 10))
    w1, w2 = (0, 0, 100), (1, 0, 20)
    sent = [pushed(w2), pulled(w2), pushed(w1), pulled(w1)]
    mixed = enforced(problem, "ring", sent)
    check(problem, mixed)
    found = evaluate(problem, mixed).iteration
    assert found.transfers == ((30, 50), (70, 90), (90, 150), (150, 210))
    check_times(problem, mixed, found)
    push, (start, end), *others = found.transfers
    early = replace(found, transfers=(push, (start - 1, end - 1), *others))
    place = r"transfers\[1\].*before the backward pass has ended"
    with pytest.raises(InvalidPlanError, match=place):
        check_times(problem, mixed, early)


@settings(max_examples=200)
@given(st.data())
def test_a_pull_needs_the_pushes_of_its_bytes(data: st.DataObject) -> None:
    """Cut and ordered at random; the oracle goes through the bytes one by one."""
    size, alike = data.draw(st.integers(1, 8)), data.draw(st.booleans())
    graph = Graph(GRAPH.ops, (Parameter("w1", size, ("b1",), ("f1",)),))
    pulled = None if alike else (size + 1,)
    problem = replace(PROBLEM, graph=graph, pull_bytes=pulled, element_bytes=1)
    moves: list[tuple[Kind, int, int]] = []
    for kind, length in (("push", size), ("pull", size if alike else size + 1)):
        cuts = data.draw(st.sets(st.integers(1, length - 1))) if length > 1 else set()
        ends = [0, *sorted(cuts), length]
        moves += [(kind, start, stop) for start, stop in pairwise(ends)]  # type: ignore[misc]
    moves = data.draw(st.permutations(moves))
    early, there = False, set[int]()
    for kind, start, stop in moves:
        wanted = set(range(start, stop)) if alike else set(range(size))
        early |= kind == "pull" and not wanted <= there
        there |= set(range(start, stop)) if kind == "push" else set()
    given_plan = plan(*(one(kind, (0, start, stop)) for kind, start, stop in moves))
    expected = pytest.raises(InvalidPlanError, match=EARLY) if early else nullcontext()
    with expected:
        check(problem, given_plan)
