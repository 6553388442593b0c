"""Decode untrusted bytes to typed values; every error carries the path of the wrong field.

The standard library parses: its hooks see duplicate keys, NaN and over-long integers, which msgspec
ignores or reports without a path. msgspec checks types and ranges, and generates the schema.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from math import isfinite, nan
from numbers import Integral, Rational, Real
from typing import Any, NamedTuple, TypeVar

import msgspec

from planner.jsonio.translating import exactly, join, translated
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_DECIMALS, shown

T = TypeVar("T")

_MAX_DIGITS = 4000
"""Python refuses to parse longer integers. They are out of range anyway."""

NO_TEXT = "not text: half of a surrogate pair"

MAX_WRITTEN = 2 * MAX_DECIMALS
"""Longest non-integer number (characters): exact arithmetic on longer ones is slow."""

MAX_DEPTH = 100
"""Deepest nesting of arrays and objects. Valid documents need about ten levels."""

_SCALARS = frozenset({int, float, bool, type(None)})
"""Types of plain values that are always valid and hold no other values."""

_TOO_DEEP = "not acceptable JSON: nested too deeply"
_TOO_SMALL = f"expected a number of at most {MAX_DECIMALS} decimals"


class _Refused(NamedTuple):
    """Placeholder for an invalid value, until the walk over the document knows its path."""

    message: str
    key: str = ""  # the object's key that is wrong, if any


def decode(data: bytes | str) -> Any:
    """Parse one JSON document strictly.

    Raises InvalidInputError, with a path, for text that is not JSON in UTF-8, deep nesting,
    duplicate keys, unpaired surrogates and numbers that are too long.
    """
    try:
        text = data.removeprefix("\ufeff") if isinstance(data, str) else data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError("", f"not UTF-8: {error.reason} at byte {error.start}") from None
    if not text.strip():
        raise InvalidInputError("", "empty: expected a JSON document")
    try:
        try:
            value = json.loads(text, object_pairs_hook=_object, parse_float=_number)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer is too long for Python: parse again, to find its path
            value = json.loads(
                text, object_pairs_hook=_object, parse_float=_number, parse_int=_saturated
            )
        return plain(value)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInputError("", f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise InvalidInputError("", _TOO_DEEP) from None


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
    """Return the exact value of a decimal number: a float if its repr is exact, else a Decimal."""
    if len(text) > MAX_WRITTEN:
        return _Refused(
            f"expected a number of at most {MAX_WRITTEN} characters, got one of {len(text)}"
        )
    value = float(text)
    if not isfinite(value):
        return value
    try:
        exact = Decimal(text)
    except InvalidOperation:  # the exponent is too large for Decimal
        return _Refused(_TOO_SMALL)
    return value if exact == Decimal(repr(value)) else exact


def _saturated(digits: str) -> int:
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    huge: int = 10**_MAX_DIGITS
    return -huge if digits.startswith("-") else huge


def plain(value: Any, path: str = "") -> Any:
    """Return a value as plain JSON values: dict, list, str, numbers, bool, None.

    Raises InvalidInputError, with a path, at the first value of another type (a set has no order)
    or string that is not valid text.
    """
    return _plain(value, path, 0)


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidInputError("", _TOO_DEEP)
    if isinstance(value, Decimal):
        value = nan if value.is_nan() else _number(str(value))
    if isinstance(value, _Refused):
        raise InvalidInputError(join(path, value.key) if value.key else path, value.message)
    if isinstance(value, float):
        return float(value)  # NumPy's doubles are floats with another repr
    if isinstance(value, str):
        return str(_text(value, path))
    if value is None or isinstance(value, bool | Decimal):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Rational):
        return float(str(value))  # NumPy's shorter floats mean the decimals shown
    if isinstance(value, Mapping):
        items = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(path, f"expected strings as keys, got {shown(key)}")
            _text(key, path)
            known = type(item) in _SCALARS
            items[str(key)] = item if known else _plain(item, join(path, key), depth + 1)
        return items
    if isinstance(value, list | tuple):
        return [
            item if type(item) in _SCALARS else _plain(item, f"{path}[{position}]", depth + 1)
            for position, item in enumerate(value)
        ]
    raise InvalidInputError(path, f"expected a JSON value, got {shown(value)}")


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(path, NO_TEXT) from None
    return value


def typed(value: Any, kind: type[T], other: Callable[[type[Any], Any], Any] = exactly) -> T:
    """Convert plain values to a msgspec structure, dataclass or named tuple, without coercion.

    `other` converts values that JSON lacks, such as fractions. Raises InvalidInputError with the
    path of the first wrong value.
    """
    try:
        return msgspec.convert(value, kind, strict=True, dec_hook=other)
    except msgspec.ValidationError as error:
        raise translated(str(error), value, kind) from None
    except UnicodeEncodeError:
        raise InvalidInputError("", NO_TEXT) from None
