"""From untrusted bytes to typed values, with an error path for everything that can be wrong.

The standard library parses (its hooks see duplicate keys, NaN and over-long integers, which msgspec
passes over or reports without a place); msgspec checks types and ranges and knows the schema.
"""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from math import isfinite
from typing import Any, TypeVar

import msgspec

from planner.errors import InvalidInputError
from planner.validation import MAX_VALUE, shown

__all__ = ["decode", "plain", "typed"]

T = TypeVar("T")

_MAX_DIGITS = 4000
"""Python refuses to parse integers of more digits; they are far out of range anyway."""

NO_TEXT = "not text: half of a surrogate pair"

MAX_DECIMALS = 1000
"""Smaller numbers mean nothing, and their fractions take for ever."""

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


class _Duplicate:
    """Stands where an object had the same key twice."""

    def __init__(self, key: str) -> None:
        self.key = key


def decode(data: bytes) -> Any:
    """Parse one JSON document strictly.

    Raises
    ------
    InvalidInputError
        If `data` is no JSON in UTF-8, is nested too deeply, or an object repeats a key.
    """
    try:
        text = data.decode("utf-8-sig")
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
        _check_keys(value, "")
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInputError("", f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise InvalidInputError("", "not acceptable JSON: nested too deeply") from None
    except UnicodeEncodeError:
        raise InvalidInputError("", NO_TEXT) from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Duplicate:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Duplicate(key)
        seen.add(key)
    raise AssertionError("unreachable")


def _number(text: str) -> float | Decimal:
    """Return a number that stands for exactly the decimals written."""
    value, exact = float(text), Decimal(text)
    return value if not isfinite(value) or exact == Decimal(repr(value)) else exact


def _saturated(digits: str) -> int:
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    huge: int = 10**_MAX_DIGITS
    return -huge if digits.startswith("-") else huge


def _check_keys(value: Any, path: str) -> None:
    if isinstance(value, _Duplicate):
        raise InvalidInputError(_join(path, value.key), "key given twice")
    if isinstance(value, dict):
        for key, item in value.items():
            if "`" in _text(key, path):
                raise InvalidInputError(_join(path, key), "unknown field")
            if isinstance(item, dict | list | _Duplicate):
                _check_keys(item, _join(path, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            if isinstance(item, dict | list | _Duplicate):
                _check_keys(item, f"{path}[{position}]")


def _join(path: str, key: str) -> str:
    clean = key.encode("utf-8", "backslashreplace").decode()
    return f"{path}.{clean}" if path else clean


def plain(value: Any, path: str = "") -> Any:
    """Return a value made of what JSON is made of, tuples and mappings as lists and objects.

    Raises
    ------
    InvalidInputError
        At the first value of another kind, such as a set, which has no order, or string that is no
        text.
    """
    if isinstance(value, float):
        return float(value)  # NumPy's are floats with a repr of their own
    if isinstance(value, str):
        return _text(value, path)
    if value is None or isinstance(value, bool | int | Decimal):
        return value
    if isinstance(value, Mapping):
        items = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(path, f"expected strings as keys, got {shown(key)}")
            if "`" in _text(key, path):
                raise InvalidInputError(_join(path, key), "unknown field")
            items[key] = plain(item, _join(path, key))
        return items
    if isinstance(value, list | tuple):
        return [
            item if type(item) is int else plain(item, f"{path}[{position}]")
            for position, item in enumerate(value)
        ]
    raise InvalidInputError(path, f"expected a JSON value, got {shown(value)}")


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(path, NO_TEXT) from None
    return value


def _exactly(kind: type[Any], value: Any) -> Fraction:
    """Return a rate as the fraction its decimals stand for."""
    assert kind is Fraction
    number = type(value) is int or (isinstance(value, float | Decimal) and isfinite(value))
    if isinstance(value, Decimal) and value and value.adjusted() < -MAX_DECIMALS:
        raise ValueError(f"Expected a number of at most {MAX_DECIMALS} decimals")
    if number and not (isinstance(value, Decimal) and value.adjusted() > MAX_DECIMALS):
        exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
        if 0 <= exact <= MAX_VALUE:
            return exact
    raise ValueError(_RATE)


def typed(value: Any, kind: type[T]) -> T:
    """Convert plain values to `kind`, a msgspec structure, without coercing anything.

    Raises
    ------
    InvalidInputError
        At the first value that does not fit, with its path.
    """
    try:
        return msgspec.convert(value, kind, strict=True, dec_hook=_exactly)
    except msgspec.ValidationError as error:
        raise _translated(str(error), value, kind) from None
    except UnicodeEncodeError:
        raise InvalidInputError("", NO_TEXT) from None


def _hidden_key(text: str, value: Any, kind: type[Any]) -> str:
    """Return the key that msgspec leaves out of a place (``$.versions[...]``).

    It is the one that keeps the message when all others are taken away.
    """
    place = re.search(r" - at `(\$[^`]*)`$", text)
    if place is None or "[...]" not in place[1]:
        return ""
    steps = _steps(place[1].rpartition("[...]")[0])
    for key, item in _value_at(value, steps).items():
        try:
            msgspec.convert(
                _replaced(value, steps, {key: item}), kind, strict=True, dec_hook=_exactly
            )
        except msgspec.ValidationError as error:
            if str(error) == text:
                return str(key)
    return ""


def _replaced(value: Any, steps: list[str | int], new: Any) -> Any:
    """Return a copy of `value` with `new` at a path."""
    if not steps:
        return new
    copy = value.copy()
    copy[steps[0]] = _replaced(value[steps[0]], steps[1:], new)
    return copy


def _translated(text: str, value: Any, kind: type[Any]) -> InvalidInputError:
    key = _hidden_key(text, value, kind)
    field = re.fullmatch(
        r"Object (contains unknown|missing required) field `(.*?)`(?: - at `(\$[^`]*)`)?",
        text,
        re.DOTALL,
    )
    if field:
        steps = _steps(field[3] or "$", key)
        path = _join(_path(steps), field[2])
        if field[1] == "missing required":
            return InvalidInputError(path, "missing")
        known = _field_names(_type_at(kind, steps))
        close = get_close_matches(field[2], known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
        return InvalidInputError(path, f"unknown field; {hint}")
    message, _, place = text.rpartition(" - at `")
    steps = _steps(place, key)
    path = _path(steps)
    if not message:
        message, steps, path = text, [], ""
    found = _value_at(value, steps)
    if message.startswith("Invalid"):
        choices = _choices(_type_at(kind, steps))
        expected = f"one of {', '.join(choices)}" if choices else "another value"
    elif message == "Number out of range":
        expected = "a smaller number"
    elif message == _RATE and _positive_at(kind, steps):
        large = isinstance(found, int | float | Decimal) and found > MAX_VALUE
        expected = f"a number <= {MAX_VALUE}" if large else "a number > 0"
    else:
        expected = re.sub(r", got .*$", "", message).removeprefix("Expected ")
        expected = re.sub(r"`([^`]*)`", lambda m: _in_words(m[1]), expected)
        types = _type_at(kind, steps)
        minima = [one.ge for one in types if isinstance(one, msgspec.inspect.IntType)]
        if any(isinstance(one, msgspec.inspect.FloatType) for one in types):
            # An integer is a number, and 0.0 is 0.
            expected = expected.replace("an integer or a number", "a number")
            expected = re.sub(r"^an integer", "a number", expected).replace("0.0", "0")
        if expected == "an integer" and minima and minima[0] is not None:
            expected = f"an integer >= {minima[0]}"
    got = shown(found)
    if " of length" in expected and isinstance(found, Sequence):
        got = f"one of length {len(found)}"
    return InvalidInputError(path, f"expected {expected}, got {got}")


def _steps(place: str, key: str = "") -> list[str | int]:
    """Split a place such as ``$.layers[3].name``; `key` stands for ``[...]``."""
    found = re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", place)
    return [key if hidden else name or int(index) for name, index, hidden in found]


def _path(steps: list[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


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
    found = [msgspec.inspect.type_info(kind)]
    for step in steps:
        found = [inner for outer in _alternatives(found) for inner in _inside(outer, step)]
    return found


def _positive_at(kind: type[Any], steps: list[str | int]) -> bool:
    """Return whether the schema asks for more than 0 at a path."""
    return any(
        isinstance(one, msgspec.inspect.Metadata)
        and (one.extra_json_schema or {}).get("exclusiveMinimum") == 0
        for one in _annotated_at(kind, steps)
    )


def _alternatives(types: list[msgspec.inspect.Type]) -> list[msgspec.inspect.Type]:
    flat: list[msgspec.inspect.Type] = []
    for one in types:
        if isinstance(one, msgspec.inspect.Metadata):
            flat += _alternatives([one.type])
        elif isinstance(one, msgspec.inspect.UnionType):
            flat += _alternatives(list(one.types))
        else:
            flat.append(one)
    return flat


def _inside(outer: msgspec.inspect.Type, step: str | int) -> list[msgspec.inspect.Type]:
    if isinstance(outer, msgspec.inspect.StructType):
        return [field.type for field in outer.fields if field.encode_name == step]
    if isinstance(outer, msgspec.inspect.TupleType) and isinstance(step, int):
        return [outer.item_types[step]]
    item = getattr(outer, "item_type", getattr(outer, "value_type", None))
    return [] if item is None else [item]


def _field_names(types: list[msgspec.inspect.Type]) -> list[str]:
    structs = [one for one in types if isinstance(one, msgspec.inspect.StructType)]
    return [field.encode_name for struct in structs for field in struct.fields]


def _choices(types: list[msgspec.inspect.Type]) -> list[str]:
    literals = [one for one in types if isinstance(one, msgspec.inspect.LiteralType)]
    return [str(value) for literal in literals for value in literal.values]
