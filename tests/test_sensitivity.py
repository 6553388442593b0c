"""How a plan changes with one number, in every family that can be perturbed."""

from fractions import Fraction
from typing import Any

import pytest

from planner.families import ibatch
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import Scenario
from planner.solving.sensitivity import FACTORS, Knob, break_even, sensitivity
from tests.perturbed import (
    CASES,
    every_family,
)


@every_family
@pytest.mark.parametrize("knob", ["computation", "startup", "bandwidth"])
def test_a_sweep_has_the_best_plan_at_every_factor(name: str, knob: Knob) -> None:
    case, few = CASES[name], (Fraction(2), Fraction(1), Fraction(1, 4), Fraction(2))
    family, problem = case.family, case.example
    plan = family.solve(problem).plan
    if knob in case.refused:
        with pytest.raises(NotApplicableError) as refused:
            sensitivity(family, problem, plan, knob, few, NEVER)
        assert refused.value.path == knob
        return
    points = sensitivity(family, problem, plan, knob, few, NEVER)
    assert [point.factor for point in points] == [Fraction(1, 4), 1, 2]
    for point in points:
        changed: dict[str, Any] = {knob: point.factor}
        other = family.perturb(problem, Scenario(**changed))
        solved = family.solve(other)
        assert solved.objective_ns is not None
        assert point.best_ns == family.price(other, point.best) <= solved.objective_ns
        assert point.bound_ns is not None
        assert point.bound_ns <= point.best_ns
        if point.kept_ns is not None:
            assert point.best_ns <= point.kept_ns
            assert point.kept_ns == family.price(other, family.repriced(other, plan))
        else:
            assert name == "drizzle"  # a group too small for the overhead
        if "ddp" not in family.methods:
            assert point.ddp_ns is None


def test_known_plans_and_new_ones_are_priced_at_every_factor() -> None:
    family, problem = ibatch.IBATCH, CASES["ibatch"].example
    one, apart = problem.plan((0, 4)), problem.plan((0, 1, 2, 3, 4))
    asked = []

    def again(
        other: ibatch.Problem, least: int | None, _: Deadline
    ) -> tuple[list[ibatch.Plan], int]:
        asked.append(least)
        return [apart], 7

    points = sensitivity(
        family, problem, one, "startup", [Fraction(0) + 1, Fraction(10)], NEVER, again=again
    )
    assert [point.best for point in points] == [apart, one]
    assert [point.bound_ns for point in points] == [7, 7]
    assert asked == [point.kept_ns for point in points]
    points = sensitivity(
        family, problem, apart, "startup", [Fraction(10)], NEVER, known=[one], again=again
    )
    assert points[0].best == one
    assert points[0].best_ns < (points[0].kept_ns or 0)


def test_a_bound_is_never_above_the_best_plan() -> None:
    """Not even one of the new plans only, if a known plan is better."""
    family, problem = ibatch.IBATCH, CASES["ibatch"].example
    kept = problem.plan((0, 4))

    def again(*_: object) -> tuple[list[ibatch.Plan], int]:
        return [], 10**9

    points = sensitivity(family, problem, kept, "startup", [Fraction(1)], NEVER, again=again)
    assert [point.bound_ns for point in points] == [family.price(problem, kept)]


def test_a_number_that_becomes_too_large_is_left_out_but_for_that_of_the_problem() -> None:
    large = ibatch.Problem(compute_ns=[2**61], startup_ns=1, transfer_ns=[1])
    plan = large.plan((0, 1))
    points = sensitivity(ibatch.IBATCH, large, plan, "computation", FACTORS, NEVER)
    assert [point.factor for point in points] == [f for f in FACTORS if f <= 2]


@pytest.mark.parametrize(
    ("beyond", "below", "found"),
    [
        (Fraction(3), None, 3),
        (None, Fraction(1, 3), Fraction(1, 3)),
        (Fraction(5), Fraction(1, 3), Fraction(1, 3)),
        (Fraction(3), Fraction(1, 5), 3),
        (Fraction(5, 2), Fraction(1, 3), Fraction(5, 2)),
        (Fraction(7, 2), Fraction(1, 3), Fraction(1, 3)),
        (Fraction(2000), None, None),
        (None, None, None),
    ],
)
def test_the_break_even_factor_is_the_nearest(
    beyond: Fraction | None, below: Fraction | None, found: Fraction | None
) -> None:
    def better(factor: Fraction) -> bool:
        above = beyond is not None and factor >= beyond
        return above or (below is not None and factor <= below)

    factor = break_even(better, NEVER)
    if found is None:
        assert factor is None
        return
    assert factor is not None
    assert better(factor)
    assert abs(factor / found - 1) < Fraction(1, 1000)
    assert break_even(better, Deadline(0)) is None


def test_where_another_plan_of_a_family_wins() -> None:
    """One batch wins where start-ups cost more: when two of them are dearer than to wait."""
    problem = ibatch.Problem(compute_ns=[100, 100], startup_ns=10, transfer_ns=[100, 100])
    apart, one = problem.plan((0, 1, 2)), problem.plan((0, 2))

    def better(factor: Fraction) -> bool:
        other = ibatch.IBATCH.perturb(problem, Scenario(startup=factor))
        return ibatch.IBATCH.price(other, one) < ibatch.IBATCH.price(other, apart)

    factor = break_even(better, NEVER)
    assert factor is not None
    assert better(factor)
    assert not better(factor * Fraction(9, 10))


def test_a_wrong_factor_is_an_invalid_input() -> None:
    with pytest.raises(InvalidInputError):
        sensitivity(
            ibatch.IBATCH,
            CASES["ibatch"].example,
            CASES["ibatch"].example.plan((0, 4)),
            "bandwidth",
            [Fraction(1), Fraction(0)],
            NEVER,
        )
