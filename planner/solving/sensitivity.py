"""The factor of one number of a problem at which another plan wins.

Method: the factor is searched for among powers of two around 1, then by bisection.
Guarantee: the nearest factor, if the comparison changes once on each side of 1.
Complexity: at most `FACTOR_BITS` + `ROUNDS` comparisons on each side of 1. Source: own.
"""

from collections.abc import Callable
from fractions import Fraction

from planner.solving.deadline import Deadline

FACTOR_BITS = 10
"""Break-even factors up to 2^10 either way are found."""

ROUNDS = 10
"""Halvings of the interval of factors: three digits."""


def break_even(better: Callable[[Fraction], bool], deadline: Deadline) -> Fraction | None:
    """Return the factor nearest to 1, on a logarithmic scale, at which another plan is better.

    Parameters
    ----------
    better : callable
        Returns whether the other plan is better at a factor.
    deadline : Deadline
        When to give up.

    Returns
    -------
    Fraction or None
        None if none is found within 2^10 either way, or in time. Where the comparison changes more
        than once, a factor up to the first power of two at which the other plan is better.
    """
    for power in range(1, FACTOR_BITS + 1):
        factors = []
        for way in (Fraction(2), Fraction(1, 2)):
            if deadline.passed:
                return None
            near, far = way ** (power - 1), way**power
            if not better(far):
                continue
            for _ in range(ROUNDS):
                middle = (near + far) / 2
                near, far = (near, middle) if better(middle) else (middle, far)
            factors.append(far)
        if factors:
            return min(factors, key=lambda factor: max(factor, 1 / factor))
    return None
