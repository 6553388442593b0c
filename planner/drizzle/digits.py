"""Shares as decimals with enough digits to show which is larger."""

from decimal import Context
from fractions import Fraction

__all__ = ["told_apart"]

_DIGITS = (6, 17, 50)
"""Numbers of digits, tried in order; 17 always tell floats apart."""


def told_apart(first: Fraction, second: Fraction) -> tuple[str, str]:
    """Return two numbers as decimals with enough digits (up to 50) to differ if they do."""
    for digits in _DIGITS:
        context = Context(digits)
        rounded = [context.divide(*value.as_integer_ratio()) for value in (first, second)]
        if first == second or rounded[0] != rounded[1]:
            break
    return f"{rounded[0].normalize(context)}", f"{rounded[1].normalize(context)}"
