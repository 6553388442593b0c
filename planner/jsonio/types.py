"""Scalar types of the JSON interface, with ranges and units, and helpers for structures."""

import json
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from planner.model.validation import MAX_TOTAL, MAX_VALUE, inside

T = TypeVar("T")
S = TypeVar("S", bound=Struct)


def says(text: str) -> Meta:
    """Return the description of a field in the schema and in the reference."""
    return Meta(description=text)


Time = Annotated[int, Meta(ge=0, le=MAX_VALUE, description="nanoseconds")]
PositiveTime = Annotated[int, Meta(ge=1, le=MAX_VALUE, description="nanoseconds")]
Moment = Annotated[int, Meta(ge=0, le=MAX_TOTAL, description="nanoseconds")]
Size = Annotated[int, Meta(ge=0, le=MAX_VALUE, description="bytes")]
PositiveSize = Annotated[int, Meta(ge=1, le=MAX_VALUE, description="bytes")]
Rate = Fraction
"""A number from 0 to 2^62, kept exactly as written (see `decoding.typed`)."""
PositiveRate = Annotated[Fraction, Meta(extra_json_schema={"exclusiveMinimum": 0})]
"""A rate; the typed problem checks that it is above 0."""

Times = Annotated[
    tuple[Time, ...], Meta(min_length=1, description="one value a layer, layer 0 first")
]
Sizes = Annotated[
    tuple[Size, ...], Meta(min_length=1, description="one value a layer, layer 0 first")
]
Rows = Annotated[
    tuple[tuple[Size, Time], ...],
    Meta(
        min_length=2,
        description="measured [bytes, ns] pairs, bytes increasing; linear between, extended by the "
        "last slope",
    ),
]
Id = Annotated[
    str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    says("of the caller; it comes back in the answer, an error and each progress line"),
]
Seconds = Annotated[float, Meta(gt=0, le=1e9, description="seconds")]
Count = Annotated[int, Meta(ge=1, le=MAX_VALUE)]
Index = Annotated[int, Meta(ge=0, le=2**31)]
LayerRange = Annotated[tuple[Index, Index], says("half-open: [a, b] holds layers a … b-1")]


def as_document(kind: type[S], /, *sources: object, **others: Any) -> S:
    """Return a document; fields that are not in `others` are copied from the sources' attributes.

    The first source that has an attribute of the field's name counts. Rows inside become documents
    as well, and fractions become numbers; values of None stay unset.
    """
    for name, (form, nullable) in _forms(kind).items():
        for source in () if name in others else sources:
            value = getattr(source, name, UNSET)
            if value is not UNSET:
                if value is not None:
                    others[name] = value if form is None else form(value)
                elif nullable:
                    others[name] = None
                break
    return kind(**others)


@cache
def _forms(kind: type[Struct]) -> dict[str, tuple[Callable[[Any], Any] | None, bool]]:
    """Return the converter of each field's value, and whether the value may be None."""
    hints = get_type_hints(kind)
    return {
        name: (_form(hints[name]), NoneType in get_args(hints[name]))
        for name in kind.__struct_fields__
    }


def _form(hint: Any) -> Callable[[Any], Any] | None:
    for part in (hint, *get_args(hint)):
        if isinstance(part, type) and issubclass(part, Struct):
            return lambda value: value if isinstance(value, part) else as_document(part, value)
        if get_origin(part) is tuple and get_args(part)[1:] == (...,):
            row = _form(get_args(part)[0])
            return tuple if row is None else partial(_each, row)
        if part is float:
            return lambda value: float(value) if isinstance(value, Fraction) else value
        if get_origin(hint) not in (Union, UnionType):
            break
    return None


def _each(form: Callable[[Any], Any], rows: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(map(form, rows))


def fields_of(document: Struct, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the fields of a document that are set: all, or those of some names."""
    names = document.__struct_fields__ if names is None else names
    given = {name: getattr(document, name) for name in names}
    return {name: value for name, value in given.items() if value is not UNSET}


def as_dataclass(kind: type[T], document: Struct, /, **others: Any) -> T:
    """Return a dataclass; fields that are not in `others` are copied from the document.

    Documents inside become dataclasses of their own; errors carry the path into the document.
    """
    inner = _dataclasses_in(cast(Any, kind))
    names = [name for name in document.__struct_fields__ if name in inner and name not in others]
    for name, value in fields_of(document, names).items():
        others[name] = value if inner[name] is None else _made(inner[name], value, name)
    return kind(**others)


def _made(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, Struct | tuple):
        return value
    if isinstance(value, tuple):
        return tuple(_made(kind, row, f"{path}[{place}]") for place, row in enumerate(value))
    with inside(path):
        return as_dataclass(kind, value)


@cache
def _dataclasses_in(kind: type[Any]) -> dict[str, type[Any] | None]:
    """Return the fields of a dataclass, each with the dataclass of its value or rows, or None."""

    def dataclass_in(hint: Any) -> type[Any] | None:
        if is_dataclass(hint):
            return cast(type[Any], hint)
        return next(filter(None, map(dataclass_in, get_args(hint))), None)

    hints = get_type_hints(kind)
    return {field.name: dataclass_in(hints[field.name]) for field in fields(kind)}


def unset_to_none(value: T | UnsetType) -> T | None:
    """Return a field's value, or None if it is unset."""
    return None if value is UNSET else value


# ---
# Layout of JSON files that people read and edit.

_WIDTH = 100
"""A longer object or array has a line for each field or item."""


def laid_out(document: Struct) -> str:
    """Return JSON text with a line for each field, and for each row of a table."""
    return _lines(to_builtins(document, enc_hook=number), "") + "\n"


def _lines(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list | tuple) or (indent and len(flat) <= _WIDTH):
        return flat
    inner = f"{indent} "
    if isinstance(value, dict):
        fields = value.items()
        rows = [f"{json.dumps(key)}: {_lines(field, inner)}" for key, field in fields]
    else:
        rows = [json.dumps(row, ensure_ascii=False) for row in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = f",\n{inner}".join(rows)
    return f"{opening}\n{inner}{lines}\n{indent}{closing}"


def number(value: Fraction) -> float:
    """Return a fraction as a JSON number: an int if whole, else a float."""
    return int(value) if value.denominator == 1 else float(value)
