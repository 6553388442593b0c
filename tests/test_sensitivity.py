"""How a plan changes with one number, in every family that can be perturbed."""

from fractions import Fraction
from typing import Any, Literal, TypeAlias

import pytest

from planner.families import ibatch
from planner.families.iteration.sensitivity import FACTORS
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import Scenario
from planner.solving.what_if import break_even, regrets
from tests.perturbed import CASES, every_family

Knob: TypeAlias = Literal["computation", "startup", "bandwidth"]


def of_factors(knob: Knob, *factors: Fraction) -> list[Scenario]:
    changes: list[dict[str, Any]] = [{knob: factor} for factor in factors]
    return [Scenario(**changed) for changed in changes]


@every_family
@pytest.mark.parametrize("knob", ["computation", "startup", "bandwidth"])
def test_a_sweep_has_the_best_plan_at_every_factor(name: str, knob: Knob) -> None:
    case, few = CASES[name], [Fraction(1, 4), Fraction(1), Fraction(2)]
    family, problem = case.family, case.example
    plan = family.solve(problem).plan
    points = regrets(family, problem, plan, NEVER, scenarios=of_factors(knob, *few))
    if knob in case.refused:
        few = few[1:2]
    if name != "drizzle" or knob in case.refused:  # where a group may be too small for a limit
        assert [point.factor for point in points] == few
    for point in points:
        other = family.perturb(problem, point.scenario)
        solved = family.solve(other)
        assert solved.objective_ns is not None
        assert point.best_ns == family.price(other, point.best) <= solved.objective_ns
        assert point.bound_ns is not None
        assert point.bound_ns <= point.best_ns <= point.plan_ns
        assert point.plan_ns == family.price(other, family.repriced(other, plan))
        if "ddp" not in family.methods:
            assert point.ddp_ns is None


def test_known_plans_and_new_ones_are_priced_in_every_scenario() -> None:
    family, problem = ibatch.IBATCH, CASES["ibatch"].example
    one, apart = problem.plan((0, 4)), problem.plan((0, 1, 2, 3, 4))
    asked = []

    def again(
        other: ibatch.Problem, least: int, _: Deadline
    ) -> tuple[list[tuple[int, ibatch.Plan]], int]:
        asked.append(least)
        return [(family.price(other, apart), apart)], 7

    factors = of_factors("startup", Fraction(1), Fraction(10))
    points = regrets(family, problem, one, NEVER, scenarios=factors, again=again, rules=())
    assert [point.best for point in points] == [apart, one]
    assert [point.bound_ns for point in points] == [7, 7]
    assert [point.ddp_ns for point in points] == [None, None]
    assert asked == [point.plan_ns for point in points]
    (point,) = regrets(
        family, problem, apart, NEVER, scenarios=factors[1:], known=[one], again=again, rules=()
    )
    assert point.best == one
    assert point.best_ns < point.plan_ns


def test_a_bound_is_never_above_the_best_plan() -> None:
    """Not even one of the new plans only, if a known plan is better."""
    family, problem = ibatch.IBATCH, CASES["ibatch"].example
    kept = problem.plan((0, 4))

    def again(*_: object) -> tuple[list[tuple[int, ibatch.Plan]], int]:
        return [], 10**9

    points = regrets(family, problem, kept, NEVER, scenarios=[Scenario()], again=again, rules=())
    assert [point.bound_ns for point in points] == [family.price(problem, kept)]


def test_a_number_that_becomes_too_large_is_left_out() -> None:
    large = ibatch.Problem(compute_ns=[2**61], startup_ns=1, transfer_ns=[1])
    plan = large.plan((0, 1))
    scenarios = of_factors("computation", *FACTORS)
    points = regrets(ibatch.IBATCH, large, plan, NEVER, scenarios=scenarios)
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
