"""The checks every input passes, with the contract's error messages.

Times and sizes are integers up to 2**62; whole schedules must fit in 63 bits, so that no sum in any
solver, compiled or not, can wrap around.
"""

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from math import isfinite, isnan
from numbers import Integral, Rational, Real
from typing import Any

from planner.errors import InvalidInputError

MAX_VALUE = 2**62
"""Largest time in nanoseconds, and largest size in bytes."""

MAX_TOTAL = 2**63 - 2
"""Largest sum of times or sizes; 2^63 - 1 is left to compiled code as "never"."""

MAX_DECIMALS = 1000
"""Most decimals of a number: what is smaller than the last of them takes for ever to compute."""

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
    if isinstance(value, Integral):
        value = int(value)
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
    names = [candidate for candidate in known if len(candidate) <= MAX_COMPARED]
    if len(name) > MAX_COMPARED or len(names) > MAX_CANDIDATES:
        return None
    return next(iter(get_close_matches(name, names, n=1)), None)


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the question that follows a misspelt name in a message, or nothing."""
    close = closest(name, known) if isinstance(name, str) else None
    return "" if close is None else f"did you mean '{close}'?"


def integer(value: Any, path: str, minimum: int = 0, maximum: int = MAX_VALUE) -> int:
    """Return `value` as an int of Python if it is an integer in [minimum, maximum].

    Integers of NumPy are integers too; sums of what is returned never wrap around.

    Raises
    ------
    InvalidInputError
        If it is anything else; booleans are not integers.
    """
    if type(value) not in (int, bool) and isinstance(value, Integral):
        value = int(value)
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
    return tuple(
        value
        if type(value) is int and minimum <= value <= MAX_VALUE
        else integer(value, f"{path}[{position}]", minimum)
        for position, value in enumerate(result)
    )


def set_integer(
    owner: object, name: str, minimum: int = 0, maximum: int = MAX_VALUE, path: str = ""
) -> None:
    """Check an attribute of a frozen instance as `integer` does, and keep what that returns.

    Parameters
    ----------
    owner : object
        The instance.
    name : str
        The attribute.
    minimum, maximum : int
        Its range.
    path : str
        Where it stands, if not under its name.
    """
    value = getattr(owner, name)
    whole = integer(value, path or name, minimum, maximum)
    if whole is not value:
        object.__setattr__(owner, name, whole)


def check_same(value: object, right: object, path: str) -> None:
    """Refuse a value that is not the one it has to be.

    Raises
    ------
    InvalidInputError
        If they differ.
    """
    if value != right:
        raise InvalidInputError(path, f"expected {shown(right)}, got {shown(value)}")


def check_count(values: Sized, count: int, path: str, what: str) -> None:
    """Refuse an array that has not as many elements as `what` counts.

    Raises
    ------
    InvalidInputError
        If it has more or fewer.
    """
    if len(values) != count:
        message = f"expected as many elements as {what} ({count}), got {len(values)}"
        raise InvalidInputError(path, message)


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Let paths of invalid input in the block begin with that of what it is in.

    Raises
    ------
    InvalidInputError
        In place of the error, with the longer path.
    """
    try:
        yield
    except InvalidInputError as error:
        where = ".".join(filter(None, (path, error.path)))
        raise InvalidInputError(where, error.message) from None


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


def exact(
    value: Any, path: str, *, positive: bool = False, decimals: int = MAX_DECIMALS
) -> Fraction:
    """Return a number from 0 to 2**62 as the fraction that it, or its decimals, stand for.

    A float, also one of NumPy, is the shortest decimal that reads as it: 0.1 is 1/10.

    Parameters
    ----------
    value : int, float, Decimal, Fraction, or a number of NumPy
        The number.
    path : str
        Where it stands.
    positive : bool
        Whether 0 is refused.
    decimals : int
        Most decimals of a number that is written with some.

    Raises
    ------
    InvalidInputError
        If it is anything else; booleans are no numbers.
    """
    amount = _fraction(value, path, decimals)
    if amount is not None and 0 <= amount <= MAX_VALUE and (amount or not positive):
        return amount
    expected = f"a number from 0 to {MAX_VALUE}"
    if positive:
        large = amount is not None and amount > 0
        expected = f"a number <= {MAX_VALUE}" if large else "a number > 0"
    raise InvalidInputError(path, f"expected {expected}, got {shown(value)}")


def set_exact(owner: object, name: str, *, positive: bool = False, path: str = "") -> None:
    """Check an attribute of a frozen instance as `exact` does, and keep what that returns."""
    value = exact(getattr(owner, name), path or name, positive=positive)
    object.__setattr__(owner, name, value)


def _fraction(value: Any, path: str, decimals: int) -> Fraction | None:
    """Return a number as a fraction; one far above every limit as one above it; else None."""
    if type(value) is Fraction:
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational):  # NumPy's integers would stay what they are in a fraction
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None if value.is_nan() else _beyond(value > 0)
        if value and value.adjusted() < -decimals:  # whose fraction would take for ever
            raise InvalidInputError(
                path, f"expected a number of at most {decimals} decimals, got {shown(value)}"
            )
        return _beyond(value > 0) if value.adjusted() > MAX_DECIMALS else Fraction(value)
    if isinstance(value, Real) and not isnan(value):
        return Fraction(str(value)) if isfinite(value) else _beyond(float(value) > 0)
    return None


def _beyond(positive: bool) -> Fraction:
    """Return what is out of range in place of what is far out of it."""
    return Fraction(MAX_VALUE + 1 if positive else -1)
