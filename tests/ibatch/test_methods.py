"""Every method against brute force, against each other and against the literal algorithms."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Literal

import pytest
from hypothesis import given, settings

from planner import AffineCost, Status, TableCost
from planner.families.ibatch import METHODS, Problem, check, evaluate, solve
from planner.families.ibatch.bounds import relaxation
from planner.families.ibatch.family import BOUND_MAX_LAYERS
from tests import oracles
from tests.strategies import huge_problems, problems

FAST = [name for name in METHODS if name not in ("milp", "cpsat")]
BASELINES = ("one_batch", "layer_by_layer", "mg_wfbp", "ddp")
PUSH_ONLY = ("mg_wfbp", "ddp")


@settings(max_examples=1500)
@given(problems())
def test_exact_equals_brute_force(problem: Problem) -> None:
    best = oracles.brute_force(problem)
    result = solve(problem)
    assert result.objective_ns == best
    assert result.status == (Status.INFEASIBLE if best is None else Status.OPTIMAL)


@settings(max_examples=500)
@given(huge_problems())
def test_exact_equals_brute_force_at_the_edge_of_the_range(problem: Problem) -> None:
    assert solve(problem).objective_ns == oracles.brute_force(problem)


@pytest.mark.slow
@settings(max_examples=600)
@given(problems())
def test_the_bound_of_every_plan_is_the_optimum(problem: Problem) -> None:
    best = oracles.brute_force(problem)
    assert best is None or relaxation(problem) <= best
    for method in FAST:
        if method not in PUSH_ONLY or problem.direction == "push":
            result = solve(problem, method=method)
            assert result.lower_bound_ns == best or result.plan is None


@settings(max_examples=600)
@given(problems())
def test_evaluation_equals_literal_simulation(problem: Problem) -> None:
    for boundaries in oracles.all_boundaries(problem):
        plan = problem.plan(boundaries)
        priced = evaluate(problem, plan)
        assert priced.makespan_ns == oracles.makespan(problem, boundaries)
        assert priced.eq4_ns == oracles.eq4(problem, boundaries)
        assert priced.eq5_holds == oracles.eq5(problem, boundaries)
        sent = sum(oracles.communication(problem, a, b) for a, b in pairwise(boundaries))
        both = (
            min(one.transfer_end_ns, other.compute_end_ns)
            - max(one.transfer_start_ns, other.compute_start_ns)
            for one, other in product(priced.schedule, repeat=2)
        )
        assert priced.overlap_ns == sum(time for time in both if time > 0)
        assert priced.overlap_ns + priced.exposed_communication_ns == sent
        assert priced.overlap_ns + priced.exposed_computation_ns == sum(problem.compute_ns)
        if priced.eq5_holds:
            assert priced.eq4_ns == priced.makespan_ns


@settings(max_examples=300)
@given(problems(objective="makespan"))
def test_pull_and_push_have_the_same_optimum(problem: Problem) -> None:
    other: Literal["pull", "push"] = "push" if problem.direction == "pull" else "pull"
    mirrored = replace(problem, direction=other)
    assert solve(problem).objective_ns == solve(mirrored).objective_ns


@settings(max_examples=400)
@given(problems(objective="makespan", capped=False))
def test_greedy_algorithms_equal_their_literal_form(problem: Problem) -> None:
    for method, literal in (
        ("greedy_forward", oracles.literal_greedy_forward),
        ("greedy_backward", oracles.literal_greedy_backward),
    ):
        result = solve(problem, method=method)
        assert result.objective_ns == oracles.makespan(problem, literal(problem)), method


@settings(max_examples=300)
@given(problems(direction="push", objective="makespan", capped=False))
def test_mg_wfbp_equals_its_literal_form(problem: Problem) -> None:
    result = solve(problem, method="mg_wfbp")
    assert result.plan is not None
    assert oracles.boundaries_of(problem, result.plan) == oracles.literal_mg_wfbp(problem)


def test_mg_wfbp_is_not_optimal() -> None:
    """Ten layers, backward 0.9, transfer 0.3, start-up 1: it ends at 13.0, the optimum is 10.6."""
    problem = Problem(direction="push", startup_ns=10, transfer_ns=[3] * 10, compute_ns=[9] * 10)
    assert solve(problem, method="mg_wfbp").objective_ns == 130
    assert solve(problem).objective_ns == 106


def test_greedy_of_the_paper_model_never_beats_its_optimum() -> None:
    """Without merging the remainder, the greedy's Eq. 4 would be 67, below the optimum 87."""
    problem = Problem(
        startup_ns=9, transfer_ns=[2, 8, 3, 15], compute_ns=[14, 15, 20, 12], objective="eq4"
    )
    assert solve(problem).objective_ns == oracles.brute_force(problem) == 87
    result = solve(problem, method="greedy")
    assert result.objective_ns is not None
    assert result.objective_ns >= 87


def test_ddp_buckets_close_once_their_limit_is_reached() -> None:
    mebibyte = 2**20
    sizes = [30 * mebibyte, mebibyte, 20 * mebibyte, 6 * mebibyte, mebibyte, mebibyte // 2]
    problem = Problem(
        direction="push",
        startup_ns=1,
        transfer_ns=[1] * 6,
        compute_ns=[1] * 6,
        layer_bytes=sizes,
    )
    result = solve(problem, method="ddp")
    assert result.plan is not None
    # Backward order: 0.5 + 1 reaches 1 MiB; 6 + 20 reaches 25 MiB; 1 + 30 reaches 25 MiB.
    assert result.plan.batches == ((4, 6), (2, 4), (0, 2))


def test_the_cap_names_the_layers_that_exceed_it() -> None:
    problem = Problem(
        startup_ns=0,
        transfer_ns=[1, 1, 1],
        compute_ns=[1, 1, 1],
        layer_bytes=[5, 50, 60],
        max_batch_bytes=10,
    )
    result = solve(problem)
    assert result.status == Status.INFEASIBLE
    assert result.infeasibility is not None
    assert result.infeasibility.binding == ("max_batch_bytes",)
    assert result.infeasibility.layers == (1, 2)
    assert "60" in result.infeasibility.reason


def test_under_eq4_a_cap_can_make_eq5_bind() -> None:
    """Two layers that must be sent apart, the second too short to cover the first's computation."""
    problem = Problem(
        startup_ns=0,
        transfer_ns=[1, 1],
        compute_ns=[100, 1],
        layer_bytes=[10, 10],
        max_batch_bytes=10,
        objective="eq4",
    )
    result = solve(problem)
    assert result.status == Status.INFEASIBLE
    assert result.infeasibility is not None
    assert "eq5" in result.infeasibility.binding


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "one_batch", "layer_by_layer", "greedy_forward"])
def test_a_time_limit_leaves_a_plan_and_its_gap(method: str) -> None:
    """Of a method that needs no search the limit cuts the proof, which `time_limit` says too."""
    count = 30_000
    problem = Problem(
        startup_ns=3,
        transfer_ns=[(i * 7919) % 1000 for i in range(count)],
        compute_ns=[(i * 104729) % 1000 for i in range(count)],
    )
    result = solve(problem, method=method, time_limit=1e-9)
    assert result.status == Status.TIME_LIMIT
    assert result.plan is not None
    check(problem, result.plan)
    best = solve(problem)
    assert best.status == Status.OPTIMAL
    assert result.lower_bound_ns is not None
    assert best.objective_ns is not None
    assert result.objective_ns is not None
    assert result.lower_bound_ns <= best.objective_ns <= result.objective_ns
    assert result.gap is not None
    assert result.gap > 0


@pytest.mark.parametrize("objective", ["makespan", "eq4"])
@pytest.mark.parametrize("cap", [None, 50])
def test_time_limits_of_the_quadratic_methods(objective: str, cap: int | None) -> None:
    cost = TableCost(((0, 10), (64, 40), (65, 20), (1000, 500)))
    problem = Problem(
        compute_ns=[5] * 60,
        layer_bytes=[20] * 60,
        cost=cost,
        objective=objective,  # type: ignore[arg-type]
        max_batch_bytes=cap,
    )
    result = solve(problem, time_limit=1e-9)
    assert result.status == Status.TIME_LIMIT
    if result.plan is None:
        assert objective == "eq4"
        assert cap == 50
    else:
        check(problem, result.plan)
        assert result.lower_bound_ns is not None


def test_larger_random_tables_agree_between_methods() -> None:
    """Beyond brute force: the two exact methods, and the greedy ones above them."""
    import random

    from planner.families.ibatch.dynamic import solve_general
    from planner.solving.deadline import Deadline

    source = random.Random(5)
    for _ in range(30):
        count = source.randint(50, 300)
        scale = source.choice([1, 100, 10_000])
        problem = Problem(
            startup_ns=source.randint(0, 1000) * scale,
            transfer_ns=[source.randint(0, 1000) for _ in range(count)],
            compute_ns=[source.randint(0, 1000) for _ in range(count)],
            layer_bytes=[source.randint(0, 100) for _ in range(count)],
            max_batch_bytes=source.choice([None, 100, 1000]),
        )
        result = solve(problem)
        assert result.objective_ns == solve_general(problem, Deadline(None)).lower_bound
        for method in ("greedy", "layer_by_layer"):
            other = solve(problem, method=method)
            assert other.lower_bound_ns == result.objective_ns


def test_long_chains_with_rounded_rates_are_bounded_without_the_quadratic_method() -> None:
    count = BOUND_MAX_LAYERS + 1
    problem = Problem(
        compute_ns=[7] * count, layer_bytes=[3] * count, cost=AffineCost(5, Fraction(1, 7))
    )
    result = solve(problem, method="one_batch")
    assert result.lower_bound_ns == relaxation(problem)
