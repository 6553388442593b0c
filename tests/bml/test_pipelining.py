"""Cutting pieces into parts never costs time, and finds most of what there is to gain."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from planner.families.bml import (
    Damage,
    Failures,
    Problem,
    Schedule,
    TreePlan,
    evaluate,
)
from planner.families.bml import (
    methods as pipelining,
)
from planner.families.bml.methods import MAX_ROUNDS, with_best_rounds
from planner.families.bml.reroute import detour
from planner.families.bml.trees import RootedTree
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.bml.plans import detoured, tree_planned


@given(detoured() | tree_planned())
def test_no_plan_gets_slower(planned: tuple[Problem, Any]) -> None:
    problem, plan = planned[0], replace(planned[1], rounds=1)
    better = with_best_rounds(problem, plan)
    assert replace(better, rounds=1) == plan
    assert 1 <= better.rounds <= MAX_ROUNDS
    assert evaluate(problem, better).time_ns <= evaluate(problem, plan).time_ns
    assert with_best_rounds(problem, plan) == better


LOST = Failures(nics=frozenset({(0, 0)}))


def planned_around(
    size: int, latency: int, bcube: BCube, failed: Failures
) -> tuple[Problem, Schedule]:
    problem = Problem(bcube, Network(Fraction(10**9), latency), size, failed=failed)
    return problem, detour(Damage(bcube, failed))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(3, 2), (2, 3)])
@pytest.mark.parametrize("latency", [0, 10, 100])
def test_against_all_numbers_of_rounds(
    n: int, k: int, latency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is answered is among the times of all R up to a cap; how near the least is printed."""
    cap = 48
    monkeypatch.setattr(pipelining, "MAX_ROUNDS", cap)
    problem, plan = planned_around(50_000, latency, BCube(n, k), LOST)
    times = [evaluate(problem, replace(plan, rounds=r)).time_ns for r in range(1, cap + 1)]
    chosen = with_best_rounds(problem, plan)
    assert chosen.rounds <= cap
    found = evaluate(problem, chosen).time_ns
    assert times[chosen.rounds - 1] == found
    assert min(times) <= found <= times[0]
    print(f"BCube({n}, {k}), {latency} ns: R={chosen.rounds}, {found / min(times) - 1:.2%} above")


def test_parts_help_where_steps_are_uneven() -> None:
    """Around a lost NIC one step waits for a busy NIC; in parts, all steps share the wait."""
    problem, plan = planned_around(10**8, 1000, BCube(3, 2), LOST)
    better = with_best_rounds(problem, plan)
    assert better.rounds >= 2 * plan.steps
    once, often = (evaluate(problem, one) for one in (plan, better))
    assert often.time_ns < once.time_ns
    assert (often.load, often.steps) == (once.load, once.steps)
    # What remains is the busiest NIC, and a little for start-up costs.
    busiest = problem.network.time(once.load * problem.size_bytes)
    assert busiest <= often.time_ns < busiest * Fraction(102, 100)


def test_a_start_up_cost_that_is_too_high_leaves_one_round() -> None:
    problem, plan = planned_around(10**6, 10**9, BCube(3, 2), LOST)
    assert with_best_rounds(problem, plan) == plan


def test_one_server_alone_has_nothing_to_cut() -> None:
    bcube, dead = BCube(2, 2), Failures(frozenset({0, 1, 3}))
    problem = Problem(bcube, Network(Fraction(1)), 10**6, failed=dead)
    alone = TreePlan(bcube, (RootedTree(2, ()),), (Fraction(1),))
    assert with_best_rounds(problem, alone) == alone
    assert evaluate(problem, alone).time_ns == 0


@pytest.mark.parametrize("size", [0, 1, 12, 60])
def test_small_gradients_are_not_cut(size: int) -> None:
    problem, plan = planned_around(size, 0, BCube(3, 2), LOST)
    assert with_best_rounds(problem, plan) == plan
