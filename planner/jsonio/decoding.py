"""From untrusted bytes to typed values, with an error path for everything that can be wrong.

The standard library parses (its hooks see duplicate keys, NaN and over-long integers, which msgspec
passes over or reports without a place); msgspec checks types and ranges and knows the schema.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import copysign, inf, isfinite, nan
from numbers import Integral, Rational, Real
from typing import Any, NamedTuple, TypeVar

import msgspec

from planner.errors import InvalidInputError
from planner.validation import MAX_DECIMALS, MAX_VALUE, did_you_mean, exact, shown

__all__ = ["decode", "plain", "typed"]

T = TypeVar("T")

_MAX_DIGITS = 4000
"""Python refuses to parse integers of more digits; they are far out of range anyway."""

NO_TEXT = "not text: half of a surrogate pair"

MAX_WRITTEN = 2 * MAX_DECIMALS
"""Longest number that is no integer, in characters: exact arithmetic on longer ones is slow."""

MAX_DEPTH = 100
"""Arrays and objects within each other; requests and files need ten."""

MAX_NAMED = 200
"""Longest key that is shown whole in the path of an error."""

_TOO_DEEP = "not acceptable JSON: nested too deeply"
_TOO_SMALL = f"expected a number of at most {MAX_DECIMALS} decimals"

_RATE = f"Expected a number from 0 to {MAX_VALUE}"

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


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
        raise InvalidInputError(_join(path, value.key) if value.key else path, value.message)
    if isinstance(value, str):
        _text(value, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_key(key, path)
            if isinstance(item, looked_at):
                _check(item, _join(path, key), depth + 1, texts=texts)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, looked_at):
                _check(item, f"{path}[{position}]", depth + 1, texts=texts)


def _check_key(key: str, path: str) -> None:
    """Refuse a key that is no text."""
    _text(key, path)


def _join(path: str, key: str) -> str:
    short = key if len(key) <= MAX_NAMED else f"{key[: MAX_NAMED - 1]}…"
    clean = short.encode("utf-8", "backslashreplace").decode()
    return f"{path}.{clean}" if path else clean


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
            items[str(key)] = _plain(item, _join(path, key), depth + 1)
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


def _exactly(kind: type[Any], value: Any) -> Fraction:
    """Return a rate as the fraction its decimals stand for."""
    assert kind is Fraction
    try:
        return exact(value, "")
    except InvalidInputError:
        raise ValueError(_RATE) from None


def typed(value: Any, kind: type[T], other: Callable[[type[Any], Any], Any] = _exactly) -> T:
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
        raise _translated(str(error), value, kind) from None
    except UnicodeEncodeError:
        raise InvalidInputError("", NO_TEXT) from None


def _hidden_key(text: str, value: Any, kind: type[Any]) -> str:
    """Return the key that msgspec leaves out of a place (``$.versions[...]``).

    It is the one with which the message begins, if items are given one after the other.
    """
    place = re.search(r" - at `(\$[^`]*)`$", text)
    if place is None or "[...]" not in place[1]:
        return ""
    steps = _steps(place[1].rpartition("[...]")[0])
    items = list(_value_at(value, steps).items())

    def refused(count: int) -> bool:
        """Whether the first so many items are enough for the message."""
        fewer = _replaced(value, steps, dict(items[:count]))
        try:
            msgspec.convert(fewer, kind, strict=True, dec_hook=_exactly)
        except msgspec.ValidationError as error:
            return str(error) == text
        return False

    needed = bisect_left(range(len(items)), x=True, key=lambda place: refused(place + 1))
    return str(items[needed][0]) if needed < len(items) else ""


def _replaced(value: Any, steps: list[str | int], new: Any) -> Any:
    """Return a copy of `value` with `new` at a path."""
    if not steps:
        return new
    copy = value.copy()
    copy[steps[0]] = _replaced(value[steps[0]], steps[1:], new)
    return copy


def _translated(text: str, value: Any, kind: type[Any]) -> InvalidInputError:
    key = _hidden_key(text, value, kind)
    field = re.fullmatch(r"(?s)Object (contains unknown|missing required) field `(.*)`", text)
    if field:
        name, _, place = field[2].rpartition("` - at `")
        if not name or (isinstance(value, dict) and field[2] in value):  # a key may hold the marks
            name, place = field[2], "$"
        steps = _steps(place, key)
        path = _join(_path(steps), name)
        if field[1] == "missing required":
            return InvalidInputError(path, "missing")
        known = _field_names(_type_at(kind, steps))
        hint = did_you_mean(name, known) or f"known are {', '.join(known)}"
        return InvalidInputError(path, f"unknown field; {hint}")
    message, _, place = text.rpartition(" - at `")
    steps = _steps(place, key)
    path = _path(steps)
    if not message:
        message, steps, path = text, [], ""
    refused = _value_at(value, steps)
    if message == _RATE:
        try:
            exact(refused, path, positive=_positive_at(kind, steps))
        except InvalidInputError as error:
            return error
    if message.startswith("Invalid"):
        choices = _choices(_type_at(kind, steps))
        expected = f"one of {', '.join(choices)}" if choices else "another value"
    elif message == "Number out of range":
        expected = "a smaller number"
    else:
        expected = re.sub(r", got .*$", "", message).removeprefix("Expected ")
        expected = re.sub(r"`([^`]*)`", lambda m: _in_words(m[1]), expected)
        types = _type_at(kind, steps)
        minima = [inner.ge for inner in types if isinstance(inner, msgspec.inspect.IntType)]
        if any(isinstance(inner, msgspec.inspect.FloatType) for inner in types):
            # An integer is a number, and 0.0 is 0.
            expected = expected.replace("an integer or a number", "a number")
            expected = re.sub(r"^an integer", "a number", expected).replace("0.0", "0")
        if expected == "an integer" and minima and minima[0] is not None:
            expected = f"an integer >= {minima[0]}"
    got = shown(refused)
    if " of length" in expected and isinstance(refused, Sequence):
        got = f"one of length {len(refused)}"
    return InvalidInputError(path, f"expected {expected}, got {got}")


def _steps(place: str, key: str = "") -> list[str | int]:
    """Split a place such as ``$.layers[3].name``; `key` stands for ``[...]``."""
    parts = re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", place)
    return [key if hidden else name or int(index) for name, index, hidden in parts]


def _path(steps: list[str | int]) -> str:
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else _join(path, step)
    return path


def _in_words(union: str) -> str:
    names = [name for name in union.split(" | ") if name != "null"] or ["null"]
    return " or ".join(_WORDS.get(name, name) for name in names)


def _value_at(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _type_at(kind: type[Any], steps: list[str | int]) -> list[msgspec.inspect.Type]:
    """Return the types msgspec allows at a path (several for a union)."""
    return _alternatives(_annotated_at(kind, steps))


def _annotated_at(kind: type[Any], steps: list[str | int]) -> list[msgspec.inspect.Type]:
    """Return the same with what annotations say, and unions not taken apart."""
    types = [msgspec.inspect.type_info(kind)]
    for step in steps:
        types = [inner for outer in _alternatives(types) for inner in _inside(outer, step)]
    return types


def _positive_at(kind: type[Any], steps: list[str | int]) -> bool:
    """Return whether the schema asks for more than 0 at a path."""
    return any(
        isinstance(inner, msgspec.inspect.Metadata)
        and (inner.extra_json_schema or {}).get("exclusiveMinimum") == 0
        for inner in _annotated_at(kind, steps)
    )


def _alternatives(types: list[msgspec.inspect.Type]) -> list[msgspec.inspect.Type]:
    flat: list[msgspec.inspect.Type] = []
    for inner in types:
        if isinstance(inner, msgspec.inspect.Metadata):
            flat += _alternatives([inner.type])
        elif isinstance(inner, msgspec.inspect.UnionType):
            flat += _alternatives(list(inner.types))
        else:
            flat.append(inner)
    return flat


def _inside(outer: msgspec.inspect.Type, step: str | int) -> list[msgspec.inspect.Type]:
    if isinstance(outer, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        return [field.type for field in outer.fields if field.encode_name == step]
    if isinstance(outer, msgspec.inspect.TupleType) and isinstance(step, int):
        return [outer.item_types[step]]
    item = getattr(outer, "item_type", getattr(outer, "value_type", None))
    return [] if item is None else [item]


def _field_names(types: list[msgspec.inspect.Type]) -> list[str]:
    structs = [inner for inner in types if isinstance(inner, msgspec.inspect.StructType)]
    return [field.encode_name for struct in structs for field in struct.fields]


def _choices(types: list[msgspec.inspect.Type]) -> list[str]:
    literals = [inner for inner in types if isinstance(inner, msgspec.inspect.LiteralType)]
    return [str(value) for literal in literals for value in literal.values]
