"""How a plan changes with one number, in every family that can be perturbed."""

from fractions import Fraction

import pytest

from planner.families import ibatch
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import Scenario
from planner.solving.what_if import break_even, regrets
from tests.perturbed import CASES

FAMILY, PROBLEM = ibatch.IBATCH, CASES["ibatch"].example
ONE, APART = PROBLEM.plan((0, 4)), PROBLEM.plan((0, 1, 2, 3, 4))

Plans = tuple[list[tuple[int, ibatch.Plan]], int]
"""New plans and what they cost, and a bound."""


def test_known_plans_and_new_ones_are_priced_in_every_scenario() -> None:
    asked = []

    def again(other: ibatch.Problem, least: int, _: Deadline) -> Plans:
        asked.append(least)
        return [(FAMILY.price(other, APART), APART)], 7

    factors = [Scenario(startup=Fraction(factor)) for factor in (1, 10)]
    points = regrets(FAMILY, PROBLEM, ONE, NEVER, scenarios=factors, again=again, rules=())
    assert [point.best for point in points] == [APART, ONE]
    assert [point.bound_ns for point in points] == [7, 7]
    assert [point.ddp_ns for point in points] == [None, None]
    assert asked == [point.plan_ns for point in points]
    (point,) = regrets(
        FAMILY, PROBLEM, APART, NEVER, scenarios=factors[1:], known=[ONE], again=again, rules=()
    )
    assert point.best == ONE
    assert point.best_ns < point.plan_ns


def test_a_bound_is_never_above_the_best_plan() -> None:
    """Not even one of the new plans only, if a known plan is better."""

    def again(*_: object) -> Plans:
        return [], 10**9

    points = regrets(FAMILY, PROBLEM, ONE, NEVER, scenarios=[Scenario()], again=again, rules=())
    assert [point.bound_ns for point in points] == [FAMILY.price(PROBLEM, ONE)]


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
