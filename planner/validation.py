"""The checks every input passes, with the contract's error messages.

Times and sizes are integers up to 2**62; whole schedules must fit in 63 bits, so that no sum in any
solver, compiled or not, can wrap around.
"""

from collections.abc import Iterable
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from math import isfinite
from typing import Any

from planner.errors import InvalidInputError

MAX_VALUE = 2**62
"""Largest time in nanoseconds, and largest size in bytes."""

MAX_TOTAL = 2**63 - 2
"""Largest sum of times or sizes; 2^63 - 1 is left to compiled code as "never"."""

MAX_SHOWN = 60
"""Longest excerpt of a bad value shown in a message."""

MAX_COMPARED = 200
"""Longest name that is compared with others: the time for a pair grows with both lengths."""

MAX_CANDIDATES = 10_000
"""Most names that one is compared with."""


def shown(value: object) -> str:
    """Return a short, single-line form of a bad value for a message."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, float) and not isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, list | tuple):
        return "an array" if value else "an empty array"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, Fraction) and value.denominator.bit_length() > 200:
        return "a fraction of very many digits"
    if isinstance(value, Decimal | Fraction):
        return str(value)[:MAX_SHOWN]
    text = repr(value).replace("\n", " ")
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a misspelt one, if one is and all are short."""
    names = [one for one in known if len(one) <= MAX_COMPARED]
    if len(name) > MAX_COMPARED or len(names) > MAX_CANDIDATES:
        return None
    return next(iter(get_close_matches(name, names, n=1)), None)


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the question that follows a misspelt name in a message, or nothing."""
    close = closest(name, known) if isinstance(name, str) else None
    return "" if close is None else f"did you mean '{close}'?"


def integer(value: Any, path: str, minimum: int = 0, maximum: int = MAX_VALUE) -> int:
    """Return `value` if it is an integer in [minimum, maximum].

    Raises
    ------
    InvalidInputError
        If it is anything else; booleans are not integers.
    """
    if type(value) is not int or value < minimum:
        raise InvalidInputError(path, f"expected an integer >= {minimum}, got {shown(value)}")
    if value > maximum:
        raise InvalidInputError(path, f"expected an integer <= {maximum}, got {shown(value)}")
    return value


def integers(values: Iterable[Any], path: str, minimum: int = 0) -> tuple[int, ...]:
    """Return `values` as a non-empty tuple of integers in [minimum, 2**62].

    Raises
    ------
    InvalidInputError
        At the first element that is not one (path ``name[3]``), or if there is none.
    """
    try:
        result = tuple(values)
    except TypeError:
        raise InvalidInputError(path, f"expected an array, got {shown(values)}") from None
    if not result:
        raise InvalidInputError(path, "expected at least one element, got an empty array")
    for position, value in enumerate(result):
        if type(value) is not int or not minimum <= value <= MAX_VALUE:
            integer(value, f"{path}[{position}]", minimum)
    return result


def total(amount: int, path: str, what: str) -> int:
    """Return `amount` if it fits in 63 bits.

    Raises
    ------
    InvalidInputError
        If it does not; `what` names the sum.
    """
    if amount > MAX_TOTAL:
        raise InvalidInputError(path, f"{what} must fit in 63 bits, got {shown(amount)}")
    return amount


def exact(value: Any, path: str, *, positive: bool = False) -> Fraction:
    """Return a number that is exact, from 0 to 2**62, as a fraction.

    Parameters
    ----------
    value : Fraction or int
        The number.
    path : str
        Where it stands.
    positive : bool
        Whether 0 is refused.

    Raises
    ------
    InvalidInputError
        If it is anything else; floats are not exact.
    """
    if not isinstance(value, int | Fraction) or isinstance(value, bool):
        raise InvalidInputError(path, f"expected an exact number, got {shown(value)}")
    if not 0 <= value <= MAX_VALUE:
        raise InvalidInputError(path, f"expected a number from 0 to 2^62, got {shown(value)}")
    if positive and not value:
        raise InvalidInputError(path, "expected a number > 0, got 0")
    return Fraction(value)
