"""How `auto` chooses, how pieces are weighed and cut, and plans where there is no time."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from planner.families.bml import BML, METHODS, Damage, Failures, Problem, Schedule, methods, solve
from planner.families.bml.evaluation import busiest_load, evaluate, time_ns
from planner.families.bml.methods import MAX_ROUNDS, balanced, with_best_rounds
from planner.families.bml.reroute import detour
from planner.families.bml.schedule import FULL_WEIGHT
from planner.families.bml.trees import Plan, TreePlan
from planner.model.errors import NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Outcome
from tests.bml.plans import detoured, tree_planned
from tests.formats.refused import refused
from tests.present import present
from tests.solved import Solved

FAST = Network(Fraction(5 * 10**9))
ONE_SWITCH_LEFT = Failures(switches=frozenset((0, switch) for switch in range(3)))
LOST = Failures(nics=frozenset({(5, 1)}))
DEAD = Failures(servers=frozenset({5}))
HOPELESS = Failures(nics=frozenset({(0, 0), (1, 1), (3, 0), (8, 0)}))
"""On BCube(3, 2): whole, but no piece can be summed up with detours of one hop."""


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("not asked for")


def test_far_from_the_bound_trees_are_tried_in_larger_networks_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "TREES_MAX_NICS", 0)
    far = Problem(BCube(4, 2), FAST, 10**9, failed=ONE_SWITCH_LEFT)
    result = solve(far)
    assert result.method == "trees"
    assert present(result.gap) < 0.02
    assert solve(far, method="detour").gap == pytest.approx(1, abs=0.02)
    monkeypatch.setattr(methods, "pack", refuse)
    assert solve(Problem(BCube(4, 2), FAST, 10**9, failed=LOST)).method == "detour"


@pytest.mark.parametrize("failed", [ONE_SWITCH_LEFT, LOST, DEAD])
def test_large_networks_are_not_given_to_the_linear_program(
    failed: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "PACKED_MAX_NICS", 0)
    monkeypatch.setattr(methods, "pack", refuse)
    result = solve(Problem(BCube(4, 2), FAST, 10**9, failed=failed), method="trees")
    assert isinstance(result.plan, TreePlan)
    assert present(result.gap) < 0.2


@pytest.mark.parametrize("failed", [LOST, DEAD])
def test_what_one_server_sends_around_takes_different_ways(failed: Failures) -> None:
    """So do slices of a lost NIC, and of those who would send to a dead server."""
    ways = Counter(
        (one.thread, one.step, part.via)
        for one in detour(Damage(BCube(8, 2), failed)).detours
        for part in one.parts
        if one.sender == 5 or one.receiver == 5
    )
    # As many detours as neighbours, in two directions at most.
    assert max(ways.values()) <= 2


# --- without time


def hasty(problem: Problem, method: str, monkeypatch: pytest.MonkeyPatch) -> Outcome[Plan]:
    """Return a method's outcome with a deadline that has passed for all optional work."""
    monkeypatch.setattr("planner.families.bml.reroute.GRACE_S", 600)
    return METHODS[method](problem, Deadline(1e-9))


def test_without_time_detours_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(BCube(4, 3), FAST, 10**9, failed=LOST)
    first = hasty(problem, "detour", monkeypatch)
    assert first.plan == detour(Damage(problem.bcube, LOST))
    assert first.timed_out
    better = Solved.of(solve(problem, method="detour"))
    assert better.iteration_ns < time_ns(problem, first.plan)
    assert busiest_load(better.plan) < busiest_load(first.plan)


@pytest.mark.parametrize("method", ["auto", "trees"])
def test_without_time_and_without_detours_there_is_a_plan_too(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(BCube(3, 2), FAST, 10**9, failed=HOPELESS)
    with refused("failed", "", NotApplicableError):
        solve(problem, method="detour")
    first = hasty(problem, method, monkeypatch)
    assert isinstance(first.plan, TreePlan)
    BML.check(problem, first.plan, NEVER)
    best = solve(problem, method=method)
    assert best.method == "trees"
    assert Solved.of(best).iteration_ns <= time_ns(problem, first.plan)


# --- lighter pieces where servers with fewer NICs sum up


@pytest.mark.parametrize(("n", "k"), [(3, 3), (2, 4), (4, 3)])
def test_the_weight_is_the_best_of_all(n: int, k: int) -> None:
    damage = Damage(BCube(n, k), LOST)
    plan = detour(damage)
    chosen = balanced(plan, damage)
    assert chosen.light
    loads = {
        weight: busiest_load(replace(plan, light=chosen.light, light_weight=weight))
        for weight in range(FULL_WEIGHT + 1)
    }
    assert loads[FULL_WEIGHT] == busiest_load(plan)
    assert busiest_load(chosen) == min(loads.values()) < busiest_load(plan)


@pytest.mark.parametrize(
    ("bcube", "failed"),
    [
        (BCube(4, 2), LOST),
        (BCube(3, 3), Failures(servers=frozenset({4}))),
        # Two opposite servers each sum up half of all pieces: if all are light, none is.
        (BCube(2, 3), Failures(nics=frozenset({(0, 0), (7, 1)}))),
    ],
)
def test_nothing_is_lighter_where_there_is_nothing_to_gain(bcube: BCube, failed: Failures) -> None:
    damage = Damage(bcube, failed)
    plan = detour(damage)
    assert balanced(plan, damage) == plan


# --- pieces cut into parts


@given(detoured() | tree_planned())
def test_no_plan_gets_slower(case: tuple[Problem, Any]) -> None:
    problem, plan = case[0], replace(case[1], rounds=1)
    better = with_best_rounds(problem, plan)
    assert replace(better, rounds=1) == plan
    assert 1 <= better.rounds <= MAX_ROUNDS
    assert evaluate(problem, better).time_ns <= evaluate(problem, plan).time_ns
    assert with_best_rounds(problem, plan) == better


def planned_around(size: int, latency: int) -> tuple[Problem, Schedule]:
    bcube, failed = BCube(3, 2), Failures(nics=frozenset({(0, 0)}))
    problem = Problem(bcube, Network(Fraction(10**9), latency), size, failed=failed)
    return problem, detour(Damage(bcube, failed))


def test_parts_help_where_steps_are_uneven() -> None:
    """Around a lost NIC one step waits for a busy NIC; in parts, all steps share the wait."""
    problem, plan = planned_around(10**8, 1000)
    better = with_best_rounds(problem, plan)
    assert better.rounds >= 2 * plan.steps
    once, often = (evaluate(problem, one) for one in (plan, better))
    assert often.time_ns < once.time_ns
    assert (often.load, often.steps) == (once.load, once.steps)
    # What remains is the busiest NIC, and a little for start-up costs.
    busiest = problem.network.time(once.load * problem.size_bytes)
    assert busiest <= often.time_ns < busiest * Fraction(102, 100)


def test_parts_of_whole_elements_are_tried_too() -> None:
    """1,024 rounds leave parts of one or two elements; 714 of two take less."""
    problem, plan = planned_around(80_000, 0)
    problem = replace(problem, network=FAST, element_bytes=4)
    most = replace(plan, rounds=1024)
    assert time_ns(problem, with_best_rounds(problem, plan)) < time_ns(problem, most)


@pytest.mark.parametrize(
    ("size", "latency"), [(10**6, 10**9), *((size, 0) for size in (0, 1, 12, 60))]
)
def test_high_start_ups_and_small_gradients_leave_one_round(size: int, latency: int) -> None:
    problem, plan = planned_around(size, latency)
    assert with_best_rounds(problem, plan) == plan
