"""Translate msgspec's errors into the contract's messages, with a path and a likely remedy."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, did_you_mean, exact, shown

MAX_NAMED = 200
"""Longest key shown in full in an error's path."""

RATE = f"Expected a number from 0 to {MAX_VALUE}"

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def join(path: str, key: str) -> str:
    """Return the path of a field."""
    short = key if len(key) <= MAX_NAMED else f"{key[: MAX_NAMED - 1]}…"
    clean = short.encode("utf-8", "backslashreplace").decode()
    return f"{path}.{clean}" if path else clean


def exactly(kind: type[Any], value: Any) -> Fraction:
    """Return the exact fraction of a number's decimals (hook of `msgspec.convert`)."""
    assert kind is Fraction
    try:
        return exact(value, "")
    except InvalidInputError:
        raise ValueError(RATE) from None


def _hidden_key(text: str, value: Any, kind: type[Any]) -> str:
    """Return the key that msgspec hides in a path (``$.versions[...]``).

    Bisection over the items: the key is that of the first item with which the message appears.
    """
    place = re.search(r" - at `(\$[^`]*)`$", text)
    if place is None or "[...]" not in place[1]:
        return ""
    steps = _steps(place[1].rpartition("[...]")[0])
    items = list(_value_at(value, steps).items())

    def refused(count: int) -> bool:
        """Return whether the first `count` items already cause the message."""
        fewer = _replaced(value, steps, dict(items[:count]))
        try:
            msgspec.convert(fewer, kind, strict=True, dec_hook=exactly)
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


def translated(text: str, value: Any, kind: type[Any]) -> InvalidInputError:
    """Return the error for a message of msgspec about a value."""
    key = _hidden_key(text, value, kind)
    field = re.fullmatch(r"(?s)Object (contains unknown|missing required) field `(.*)`", text)
    if field:
        name, _, place = field[2].rpartition("` - at `")
        if not name or (isinstance(value, dict) and field[2] in value):  # a key holds the mark
            name, place = field[2], "$"
        steps = _steps(place, key)
        path = join(_path(steps), name)
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
    if message == RATE:
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
            # "an integer or a number" is a number; write 0.0 as 0.
            expected = expected.replace("an integer or a number", "a number")
            expected = re.sub(r"^an integer", "a number", expected).replace("0.0", "0")
        if expected == "an integer" and minima and minima[0] is not None:
            expected = f"an integer >= {minima[0]}"
    got = shown(refused)
    if " of length" in expected and isinstance(refused, Sequence):
        got = f"one of length {len(refused)}"
    return InvalidInputError(path, f"expected {expected}, got {got}")


def _steps(place: str, key: str = "") -> list[str | int]:
    """Split a path such as ``$.layers[3].name``; `key` replaces ``[...]``."""
    parts = re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", place)
    return [key if hidden else name or int(index) for name, index, hidden in parts]


def _path(steps: list[str | int]) -> str:
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else join(path, step)
    return path


def _in_words(union: str) -> str:
    names = [name for name in union.split(" | ") if name != "null"] or ["null"]
    return " or ".join(_WORDS.get(name, name) for name in names)


def _value_at(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _type_at(kind: type[Any], steps: list[str | int]) -> list[msgspec.inspect.Type]:
    """Return the types allowed at a path, with unions split and annotations removed."""
    return _alternatives(_annotated_at(kind, steps))


def _annotated_at(kind: Any, steps: list[str | int]) -> list[msgspec.inspect.Type]:
    """Return the types allowed at a path, with their annotations and unions."""
    types = [_type_of(kind)]
    for step in steps:
        types = [inner for outer in _alternatives(types) for inner in _inside(outer, step)]
    return types


def _positive_at(kind: type[Any], steps: list[str | int]) -> bool:
    """Return whether the schema requires a value above 0 at a path."""
    return any(
        isinstance(inner, msgspec.inspect.Metadata)
        and (inner.extra_json_schema or {}).get("exclusiveMinimum") == 0
        for inner in _annotated_at(kind, steps)
    )


@cache  # looking at a whole request takes milliseconds, and there is one kind for each problem
def _type_of(kind: type[Any]) -> msgspec.inspect.Type:
    """Return the type of a request or an answer, as msgspec describes it."""
    return msgspec.inspect.type_info(kind)


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
    """Return the fields of structures, those of a structure itself before those of its bases."""
    names = []
    for struct in types:
        if isinstance(struct, msgspec.inspect.StructType):
            own = {name: place for place, name in enumerate(struct.cls.__annotations__)}
            fields = sorted(struct.fields, key=lambda field: own.get(field.name, len(own)))
            names += [field.encode_name for field in fields]
    return names


def _choices(types: list[msgspec.inspect.Type]) -> list[str]:
    literals = [inner for inner in types if isinstance(inner, msgspec.inspect.LiteralType)]
    return [str(value) for literal in literals for value in literal.values]
