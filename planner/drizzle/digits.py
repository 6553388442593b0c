"""Shares as decimals that show which is larger."""

from decimal import Context
from fractions import Fraction

__all__ = ["told_apart"]

_DIGITS = (6, 17, 50)
"""Tried one after the other; the second always tells floats apart."""


def told_apart(first: Fraction, second: Fraction) -> tuple[str, str]:
    """Return two numbers with enough digits to see their difference, as far as that is sensible."""
    for digits in _DIGITS:
        context = Context(digits)
        rounded = [context.divide(*value.as_integer_ratio()) for value in (first, second)]
        if first == second or rounded[0] != rounded[1]:
            break
    return f"{rounded[0].normalize(context)}", f"{rounded[1].normalize(context)}"
