"""Scalar types of the JSON interface, with ranges and units, and helpers for structures."""

from fractions import Fraction
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from planner.model.validation import MAX_TOTAL, MAX_VALUE

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

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
    Meta(description="of the caller; it comes back in the answer, an error and each progress line"),
]
Seconds = Annotated[float, Meta(gt=0, le=1e9, description="seconds")]
Count = Annotated[int, Meta(ge=1, le=MAX_VALUE)]
Index = Annotated[int, Meta(ge=0, le=2**31)]
LayerRange = Annotated[
    tuple[Index, Index], Meta(description="half-open: [a, b] holds layers a … b-1")
]


def filled(kind: type[S], source: object, /, **others: Any) -> S:
    """Return a document with `others`, and otherwise with the fields of `source` by name."""
    names = [
        name for name in kind.__struct_fields__ if name not in others and hasattr(source, name)
    ]
    return kind(**{name: getattr(source, name) for name in names}, **others)


def fields_of(document: Struct, kind: type[Any] | None = None) -> dict[str, Any]:
    """Return the fields of a document that are set: all, or those that a dataclass has too."""
    fields = structs.asdict(document)
    names = fields if kind is None else fields.keys() & kind.__dataclass_fields__.keys()
    return {name: fields[name] for name in names if fields[name] is not UNSET}


def made_of(kind: type[T], document: Struct, /, **others: Any) -> T:
    """Return a dataclass with `others`, and otherwise with the set fields of a document."""
    return kind(**{**fields_of(document, kind), **others})


def or_none(value: T | UnsetType) -> T | None:
    """Return a field's value, or None if it is unset."""
    return None if value is UNSET else value
