"""Checks of input values, with the contract's error messages.

Times and sizes are integers up to 2**62. Whole schedules must fit in 63 bits, so that no sum in any
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

from planner.model.errors import InvalidInputError

MAX_VALUE = 2**62  # largest time in nanoseconds, and largest size in bytes
MAX_TOTAL = 2**63 - 2  # largest sum of times or sizes; compiled code uses 2^63 - 1 for "never"
MAX_DECIMALS = 1000  # largest number of decimals; exact arithmetic with more takes too long
MAX_SHOWN = 60  # longest excerpt of a wrong value in a message
MAX_COMPARED = 200  # longest name compared with others: the time grows with the lengths' product
MAX_CANDIDATES = 10_000  # largest number of known names that a wrong name is compared with


def shown(value: object) -> str:
    """Return a short, single-line form of a wrong value for a message."""
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
    """Return the known name most similar to a misspelt one, or None.

    None also if the name or the list is too long to compare.
    """
    names = [candidate for candidate in known if len(candidate) <= MAX_COMPARED]
    if len(name) > MAX_COMPARED or len(names) > MAX_CANDIDATES:
        return None
    return next(iter(get_close_matches(name, names, n=1)), None)


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the question "did you mean …?" for a misspelt name, or an empty text."""
    close = closest(name, known) if isinstance(name, str) else None
    return "" if close is None else f"did you mean '{close}'?"


def integer(value: Any, path: str, minimum: int = 0, maximum: int = MAX_VALUE) -> int:
    """Return `value` as a Python int if it is an integer in [minimum, maximum].

    NumPy integers are converted, so that sums never wrap around; booleans are errors.
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

    Errors carry the element's path, such as ``name[3]``.
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
    """Check an attribute of a frozen instance with `integer`, and store the result.

    `path` is for errors; by default the attribute's name.
    """
    value = getattr(owner, name)
    whole = integer(value, path or name, minimum, maximum)
    if whole is not value:
        object.__setattr__(owner, name, whole)


def one_of(value: Any, known: Iterable[str], path: str) -> str:
    """Return `value` if it is a `known` name; else the error at `path` lists them all."""
    names = list(known)
    if isinstance(value, str) and value in names:
        return value
    hint = did_you_mean(value, names)
    text = f"expected one of {', '.join(names)}, got {shown(value)}"
    raise InvalidInputError(path, f"{text} ({hint})" if hint else text)


def check_same(value: object, right: object, path: str) -> None:
    """Raise an error unless `value` equals `right`."""
    if value != right:
        raise InvalidInputError(path, f"expected {shown(right)}, got {shown(value)}")


def check_count(values: Sized, count: int, path: str, what: str) -> None:
    """Raise an error unless `values` has `count` elements; `what` names the counted things."""
    if len(values) != count:
        message = f"expected as many elements as {what} ({count}), got {len(values)}"
        raise InvalidInputError(path, message)


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Prefix the path of InvalidInputError raised in the block with `path`."""
    try:
        yield
    except InvalidInputError as error:
        where = ".".join(filter(None, (path, error.path)))
        raise InvalidInputError(where, error.message) from None


def total(amount: int, path: str, what: str) -> int:
    """Return `amount`; raise an error above 63 bits. `what` names the sum in the message."""
    if amount > MAX_TOTAL:
        raise InvalidInputError(path, f"{what} must fit in 63 bits, got {shown(amount)}")
    return amount


def exact(
    value: Any, path: str, *, positive: bool = False, decimals: int = MAX_DECIMALS
) -> Fraction:
    """Return a number from 0 to 2**62 as an exact Fraction.

    A float (also of NumPy) means the shortest decimal that reads as it: 0.1 is 1/10. Booleans are
    errors. `positive` excludes 0; `decimals` limits the decimals of the number.
    """
    amount = _fraction(value, path, decimals)
    if amount is not None and 0 <= amount <= MAX_VALUE and (amount or not positive):
        return amount
    expected = f"a number from 0 to {MAX_VALUE}"
    if positive:
        large = amount is not None and amount > 0
        expected = f"a number <= {MAX_VALUE}" if large else "a number > 0"
    raise InvalidInputError(path, f"expected {expected}, got {shown(value)}")


def set_exact(owner: object, name: str, *, positive: bool = False) -> None:
    """Check an attribute of a frozen instance with `exact`, and store the result."""
    object.__setattr__(owner, name, exact(getattr(owner, name), name, positive=positive))


def _fraction(value: Any, path: str, decimals: int) -> Fraction | None:
    """Return a number as a fraction, or None; numbers far out of range become `_beyond`."""
    if type(value) is Fraction:
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational):  # a fraction would keep NumPy's integers
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None if value.is_nan() else _beyond(value > 0)
        if value and value.adjusted() < -decimals:  # its fraction would be huge
            raise InvalidInputError(
                path, f"expected a number of at most {decimals} decimals, got {shown(value)}"
            )
        return _beyond(value > 0) if value.adjusted() > MAX_DECIMALS else Fraction(value)
    if isinstance(value, Real) and not isnan(value):
        return Fraction(str(value)) if isfinite(value) else _beyond(float(value) > 0)
    return None


def _beyond(positive: bool) -> Fraction:
    """Return a number just out of range, in place of a huge one."""
    return Fraction(MAX_VALUE + 1 if positive else -1)
