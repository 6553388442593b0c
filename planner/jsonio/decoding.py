"""From untrusted bytes to typed values, with an error path for everything that can be wrong.

The standard library parses (its hooks see duplicate keys, NaN and over-long integers, which msgspec
passes over or reports without a place); msgspec checks types and ranges and knows the schema.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from math import copysign, inf, isfinite, nan
from numbers import Integral, Rational, Real
from typing import Any, NamedTuple, TypeVar

import msgspec

from planner.errors import InvalidInputError
from planner.jsonio.translating import exactly, join, translated
from planner.validation import MAX_DECIMALS, shown

__all__ = ["decode", "plain", "typed"]


T = TypeVar("T")

_MAX_DIGITS = 4000
"""Python refuses to parse integers of more digits; they are far out of range anyway."""

NO_TEXT = "not text: half of a surrogate pair"

MAX_WRITTEN = 2 * MAX_DECIMALS
"""Longest number that is no integer, in characters: exact arithmetic on longer ones is slow."""

MAX_DEPTH = 100
"""Arrays and objects within each other; requests and files need ten."""

_TOO_DEEP = "not acceptable JSON: nested too deeply"
_TOO_SMALL = f"expected a number of at most {MAX_DECIMALS} decimals"


class _Refused(NamedTuple):
    """Stands where the document has what no value stands for, until its path is known.

    Attributes
    ----------
    message : str
        What is wrong.
    key : str
        With which key of an object, if with one.
    """

    message: str
    key: str = ""


def decode(data: bytes | str) -> Any:
    """Parse one JSON document strictly.

    Raises
    ------
    InvalidInputError
        If `data` is no JSON in UTF-8, is nested too deeply, an object repeats a key, or a text or
        number is none, with its path.
    """
    loose = isinstance(data, str)  # may hold half of a surrogate pair without an escape
    try:
        text = data.removeprefix("\ufeff") if isinstance(data, str) else data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError("", f"not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        try:
            value = json.loads(text, object_pairs_hook=_object, parse_float=_number)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer longer than Python parses: give it a place in the document
            value = json.loads(
                text, object_pairs_hook=_object, parse_float=_number, parse_int=_saturated
            )
        _check(value, "", 0, texts=loose or "\\u" in text)  # else nothing is half a pair
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInputError("", f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise InvalidInputError("", _TOO_DEEP) from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Refused("key given twice", key)
        seen.add(key)
    raise AssertionError("unreachable")


def _number(text: str) -> float | Decimal | _Refused:
    """Return a number that stands for exactly the decimals written."""
    if len(text) > MAX_WRITTEN:
        return _Refused(
            f"expected a number of at most {MAX_WRITTEN} characters, got one of {len(text)}"
        )
    value = float(text)
    if not isfinite(value):
        return value
    try:
        exact = Decimal(text)
    except InvalidOperation:  # the exponent is beyond those of decimals
        return _Refused(_TOO_SMALL)
    return value if exact == Decimal(repr(value)) else exact


def _saturated(digits: str) -> int:
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    huge: int = 10**_MAX_DIGITS
    return -huge if digits.startswith("-") else huge


def _check(value: Any, path: str, depth: int, *, texts: bool) -> None:
    """Refuse what cannot be a document of ours, whatever it is about.

    Texts are only looked at if `texts` says so.
    """
    if depth > MAX_DEPTH:
        raise InvalidInputError("", _TOO_DEEP)
    looked_at = (dict, list, _Refused, str) if texts else (dict, list, _Refused)
    if isinstance(value, _Refused):
        raise InvalidInputError(join(path, value.key) if value.key else path, value.message)
    if isinstance(value, str):
        _text(value, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_key(key, path)
            if isinstance(item, looked_at):
                _check(item, join(path, key), depth + 1, texts=texts)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, looked_at):
                _check(item, f"{path}[{position}]", depth + 1, texts=texts)


def _check_key(key: str, path: str) -> None:
    """Refuse a key that is no text."""
    _text(key, path)


def plain(value: Any, path: str = "") -> Any:
    """Return a value made of what JSON is made of, tuples and mappings as lists and objects.

    Raises
    ------
    InvalidInputError
        At the first value of another kind, such as a set, which has no order, or string that is no
        text.
    """
    return _plain(value, path, 0)


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidInputError("", _TOO_DEEP)
    if isinstance(value, float):
        return float(value)  # NumPy's doubles are floats with a repr of their own
    if isinstance(value, str):
        return str(_text(value, path))
    if isinstance(value, Decimal):
        return _plain_decimal(value, path)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Rational):
        return float(str(value))  # NumPy's shorter ones stand for the decimals that they show
    if isinstance(value, Mapping):
        items = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(path, f"expected strings as keys, got {shown(key)}")
            _check_key(key, path)
            items[str(key)] = _plain(item, join(path, key), depth + 1)
        return items
    if isinstance(value, list | tuple):
        return [
            item if type(item) is int else _plain(item, f"{path}[{position}]", depth + 1)
            for position, item in enumerate(value)
        ]
    raise InvalidInputError(path, f"expected a JSON value, got {shown(value)}")


def _plain_decimal(value: Decimal, path: str) -> float | Decimal:
    """Return a number as JSON text would give it."""
    if not value.is_finite():
        return nan if value.is_nan() else copysign(inf, value)
    if value and value.adjusted() < -MAX_DECIMALS:
        raise InvalidInputError(path, _TOO_SMALL)
    if len(value.as_tuple().digits) > MAX_WRITTEN:
        raise InvalidInputError(path, f"expected a number of at most {MAX_WRITTEN} characters")
    return value


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(path, NO_TEXT) from None
    return value


def typed(value: Any, kind: type[T], other: Callable[[type[Any], Any], Any] = exactly) -> T:
    """Convert plain values to `kind`, without coercing anything.

    Parameters
    ----------
    value : object
        Plain values.
    kind : type
        A msgspec structure, a dataclass or a named tuple.
    other : callable
        Makes what no JSON is: a fraction, of the decimals that stand for it.

    Raises
    ------
    InvalidInputError
        At the first value that does not fit, with its path.
    """
    try:
        return msgspec.convert(value, kind, strict=True, dec_hook=other)
    except msgspec.ValidationError as error:
        raise translated(str(error), value, kind) from None
    except UnicodeEncodeError:
        raise InvalidInputError("", NO_TEXT) from None
