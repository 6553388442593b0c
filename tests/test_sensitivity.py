"""At which change of a number another plan wins."""

from fractions import Fraction

import pytest

from planner.families import ibatch
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import Scenario
from planner.solving.sensitivity import break_even


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
