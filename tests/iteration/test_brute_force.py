"""Bounds and plans beside every plan of whole parameters there is, on tiny problems."""

import pytest
from hypothesis import given, settings

from planner.families.iteration import Plan, Problem, bound, check, evaluate, network_bound, solve
from planner.families.iteration.baselines import both_ways, enforced
from tests.iteration import brute_force
from tests.iteration.iteration_strategies import clusters, problems, whole_rates
from tests.iteration.pricing import lasts

two = problems(cluster=clusters(single=False), max_parameters=2, capped=False, one_order=True)
three = problems(cluster=whole_rates(), max_parameters=3, capped=False, one_order=True)


def price(problem: Problem, plan: Plan) -> int:
    return evaluate(problem, plan).iteration_ns


@settings(max_examples=25)
@given(two)
def test_every_plan_is_one_and_costs_what_happens(problem: Problem) -> None:
    algorithm = problem.single[0].algorithm
    for made in (brute_force.replicated, brute_force.sharded):
        for plan in made(problem, algorithm):
            check(problem, plan)
            assert price(problem, plan) == lasts(problem, plan)


@pytest.mark.slow
@settings(max_examples=25)
@given(two)
def test_no_plan_undercuts_a_bound(problem: Problem) -> None:
    for option in problem.by_name.values():
        for mode, made in (
            ("replicated", brute_force.replicated),
            ("sharded", brute_force.sharded),
        ):
            plans = list(made(problem, option.algorithm))
            best = min(price(problem, plan) for plan in plans)
            assert bound(problem, option, mode) <= best  # type: ignore[arg-type]
            assert network_bound(problem, plans[0]) <= best


@pytest.mark.slow
@settings(max_examples=25)
@given(three)
def test_auto_is_no_worse_than_every_plan_of_its_classes(problem: Problem) -> None:
    result = solve(problem)
    assert result.objective_ns is not None
    assert result.lower_bound_ns is not None
    for option in problem.single:
        best = min(
            price(problem, plan)
            for made in (brute_force.replicated, brute_force.pushes_then_pulls)
            for plan in made(problem, option.algorithm)
        )
        assert result.lower_bound_ns <= best
        assert result.objective_ns <= best


@settings(max_examples=40)
@given(three)
def test_both_ways_is_the_best_of_pushes_before_pulls(problem: Problem) -> None:
    option = problem.single[0]
    plan = enforced(problem, option.algorithm, both_ways(problem, option))
    check(problem, plan)
    best = min(
        price(problem, one) for one in brute_force.pushes_then_pulls(problem, option.algorithm)
    )
    assert price(problem, plan) == best


def test_the_oracle_lists_every_grouping_once() -> None:
    assert [len(set(brute_force.groupings(range(count)))) for count in range(1, 5)] == [
        1, 3, 13, 75,
    ]  # fmt: skip
