"""The smallest group against brute force; prices, limits, and every way of having none."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import InvalidInputError, Status
from planner.families.drizzle import Plan, Problem, check, evaluate, solve
from planner.families.drizzle.evaluation import curve, largest_group
from planner.model.errors import BrokenConstraintError, InvalidPlanError
from planner.model.validation import MAX_TOTAL, MAX_VALUE
from tests.drizzle.drizzle_strategies import brute_force, keeps, literal_overhead, problems

TRIED = 150
"""Brute force looks no farther."""
TOO_MUCH = MAX_VALUE * 390_000 + 900_000_000


def example(**change: Any) -> Problem:
    fields: dict[str, Any] = {
        "compute_ns": 900_000_000,
        "tasks": 256,
        "task_ns": 390_000,
        "max_overhead": Fraction(1, 20),
    }
    return Problem(**{**fields, **change})


@settings(max_examples=500)
@given(problems())
def test_exact_equals_brute_force(problem: Problem) -> None:
    best = brute_force(problem, TRIED)
    result = solve(problem)
    if best is None:
        assert result.plan is None or result.plan.group_size > TRIED
    else:
        assert result.plan is not None
        assert result.plan.group_size == best
        assert result.status == Status.OPTIMAL
        time = best * (problem.compute_ns + literal_overhead(problem, best))
        assert result.objective_ns == result.lower_bound_ns == ceil(time)


@pytest.mark.slow
@settings(max_examples=300)
@given(problems(limited=True))
def test_an_infeasible_answer_is_right(problem: Problem) -> None:
    """Within a limit on the time of a group brute force sees every size there is."""
    assume(problem.compute_ns > 0)
    result = solve(problem)
    assert problem.max_group_ns is not None
    assert (result.plan is None) == (brute_force(problem, problem.max_group_ns) is None)


@settings(max_examples=300)
@given(problems())
def test_what_binds_is_what_must_give(problem: Problem) -> None:
    """Without the limits that bind there is a plan; with any other one left out there is none."""
    result = solve(problem)
    if result.plan is not None:
        return
    assert result.infeasibility is not None
    binding = result.infeasibility.binding
    assert set(binding) <= {"max_overhead", "max_group_ns"}
    if "max_overhead" not in binding:
        nearly_all = replace(problem, max_overhead=Fraction(10**9 - 1, 10**9))
        assert solve(nearly_all).plan is None
    if "max_group_ns" not in binding:
        assert solve(replace(problem, max_group_ns=None)).plan is None
    if binding == ("max_group_ns",):
        assert solve(replace(problem, max_group_ns=None)).plan is not None


@settings(max_examples=300)
@given(problems(), st.integers(1, 50))
def test_prices_are_the_printed_formulas(problem: Problem, size: int) -> None:
    priced = evaluate(problem, Plan(size))
    spent = literal_overhead(problem, size)
    iteration = problem.compute_ns + spent
    assert priced.overhead_time == spent
    assert priced.iteration == iteration
    assert priced.iteration_ns - 1 < iteration <= priced.iteration_ns
    assert priced.group == size * iteration
    assert priced.overhead * iteration == spent
    assert 0 <= priced.overhead <= 1
    if problem.compute_ns:
        assert priced.overhead_of_compute == spent / problem.compute_ns
    else:
        assert priced.overhead_of_compute is None
    assert priced.speedup * iteration == problem.compute_ns + literal_overhead(problem, 1) or (
        iteration == 0 and priced.speedup == 1
    )


@settings(max_examples=300)
@given(problems(), st.integers(1, 60))
def test_the_checker_accepts_what_keeps_the_limits(problem: Problem, size: int) -> None:
    if keeps(problem, size):
        check(problem, Plan(size))
    else:
        with pytest.raises(BrokenConstraintError) as caught:
            check(problem, Plan(size))
        assert caught.value.path == "group_size"
        assert caught.value.binding in ("max_overhead", "max_group_ns")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        *((Plan(size), "an integer >= 1") for size in (0, -1, True, 2.0, None)),  # type: ignore[arg-type]
        *((plan, "a Plan") for plan in (None, 3, "exact")),
    ],
)
def test_the_checker_refuses_what_is_no_plan(plan: Any, message: str) -> None:
    with pytest.raises(InvalidPlanError, match=f"expected {message}"):
        check(example(), plan)


def test_numbers_of_numpy_are_what_they_print() -> None:
    given = example(task_ns=np.float64(0.1), max_overhead=np.float64(0.05))
    assert given == example(task_ns=0.1, max_overhead=0.05)
    assert given.task_ns == Fraction(1, 10)


@settings(max_examples=200)
@given(problems(limited=True))
def test_the_largest_group_is_the_largest(problem: Problem) -> None:
    most = largest_group(problem)
    assume(most is not None)
    assert most is not None
    generous = replace(problem, max_overhead=Fraction(10**12 - 1, 10**12))
    for size, fits in ((most, True), (most + 1, False)):
        time = size * (problem.compute_ns + literal_overhead(generous, max(size, 1)))
        assert size == 0 or (time <= (problem.max_group_ns or 0)) == fits


def test_an_overhead_that_no_group_takes_away() -> None:
    exactly = example(compute_ns=900, tasks=1, task_ns=7, constant_task_ns=100, max_overhead=0.1)
    assert solve(exactly).plan is None, "only an infinite group would do"
    assert solve(replace(exactly, task_ns=0)).plan == Plan(1)


def test_a_group_that_is_a_nanosecond_too_long_is_refused_to_the_nanosecond() -> None:
    late = example(compute_ns=10**12, tasks=1, task_ns=0, max_group_ns=10**12 - 1)
    with pytest.raises(BrokenConstraintError, match=r"takes 1000000000000 ns, more than .*999$"):
        check(late, Plan(1))


def test_nothing_to_compute() -> None:
    found = solve(example(compute_ns=0)).infeasibility
    assert found is not None
    assert found.binding == ("max_overhead",)
    assert "nothing is computed" in found.reason
    nothing = example(compute_ns=0, task_ns=0)
    assert solve(nothing).plan == Plan(1)
    assert evaluate(nothing, Plan(1)).overhead == 0


def test_times_at_the_edge_of_the_range() -> None:
    problem = example(compute_ns=MAX_VALUE, tasks=1, task_ns=1, max_overhead=Fraction(1, 2))
    assert solve(problem).objective_ns == MAX_VALUE + 1
    tiny = Fraction(1, 2**40)
    with pytest.raises(InvalidInputError, match="must fit in 63 bits") as caught:
        solve(example(compute_ns=10**15, task_ns=10**12, max_overhead=tiny))
    assert caught.value.path == "max_overhead"
    found = solve(
        example(compute_ns=10**15, task_ns=10**12, max_overhead=tiny, max_group_ns=MAX_VALUE)
    ).infeasibility
    assert found is not None
    assert found.binding == ("max_overhead", "max_group_ns")


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"compute_ns": -1}, "compute_ns", "expected an integer >= 0, got -1"),
        ({"compute_ns": 2.0}, "compute_ns", "expected an integer >= 0, got 2.0"),
        ({"tasks": 0}, "tasks", "expected an integer >= 1, got 0"),
        ({"tasks": None}, "tasks", "missing (or stages)"),
        ({"group_ns": -1}, "group_ns", f"expected a number from 0 to {MAX_VALUE}, got -1"),
        ({"task_ns": "1"}, "task_ns", f"expected a number from 0 to {MAX_VALUE}, got '1'"),
        ({"task_ns": True}, "task_ns", f"expected a number from 0 to {MAX_VALUE}, got true"),
        ({"task_ns": float("nan")}, "task_ns", f"expected a number from 0 to {MAX_VALUE}, got NaN"),
        (
            {"constant_task_ns": 2**62 + 1},
            "constant_task_ns",
            f"expected a number from 0 to {MAX_VALUE}, got {2**62 + 1}",
        ),
        ({"max_overhead": 0}, "max_overhead", "expected a number > 0 and < 1, got 0"),
        ({"max_overhead": 1}, "max_overhead", "expected a number > 0 and < 1, got 1"),
        (
            {"max_overhead": None},
            "max_overhead",
            f"expected a number from 0 to {MAX_VALUE}, got null",
        ),
        ({"max_group_ns": 0}, "max_group_ns", "expected an integer >= 1, got 0"),
        (
            {"tasks": MAX_VALUE},
            "task_ns",
            f"the time of a group of one must fit in 63 bits, got {TOO_MUCH}",
        ),
    ],
)
def test_what_cannot_be(change: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        example(**change)
    assert (caught.value.path, caught.value.message) == (path, message)


@settings(max_examples=200)
@given(problems())
def test_the_curve_goes_through_the_plan_and_beyond_the_limits(problem: Problem) -> None:
    plan = solve(problem).plan
    assume(plan is not None)
    assert plan is not None
    points = curve(problem, plan.group_size)
    sizes = [size for size, _ in points]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] >= 4 * plan.group_size
    assert plan.group_size in sizes
    most = largest_group(problem)
    if most is not None and most <= 100 * plan.group_size:
        assert most in sizes
        assert sizes[-1] > most
    for size, priced in points:
        assert priced == evaluate(problem, Plan(size))
        assert priced.group_ns <= MAX_TOTAL


def test_the_curve_ends_where_times_do() -> None:
    points = curve(example(compute_ns=MAX_VALUE, tasks=1), 1)
    assert [size for size, _ in points] == [1]
