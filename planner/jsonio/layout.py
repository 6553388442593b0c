"""Layout of JSON files that people read and edit: one field per line."""

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def in_lines(document: msgspec.Struct) -> str:
    """Return JSON text with one line per field of each part; fields that are null are left out."""
    parts: Mapping[str, Mapping[str, Any]] = msgspec.to_builtins(document)
    texts = []
    for name, fields in parts.items():
        rows = ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
            for key, value in fields.items()
            if value is not None
        )
        texts.append(f' "{name}": {{\n{rows}\n }}')
    return "{\n" + ",\n".join(texts) + "\n}\n"


def numbers(kind: type[S], source: object) -> S:
    """Return a document of an object's fractions and tuples of fractions, by field name."""
    values = {name: getattr(source, name) for name in kind.__struct_fields__}
    return kind(
        **{
            name: tuple(map(number, value)) if isinstance(value, tuple) else number(value)
            for name, value in values.items()
        }
    )


def number(value: Fraction) -> float:
    """Return a fraction as a JSON number: an int if whole, else a float."""
    return int(value) if value.denominator == 1 else float(value)
