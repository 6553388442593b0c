"""Layout of JSON files that people read and edit."""

import json
from fractions import Fraction
from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)

_WIDTH = 100
"""A longer object or array has a line for each field or item."""


def laid_out(document: msgspec.Struct) -> str:
    """Return JSON text with a line for each field, and for each row of a table."""
    return _lines(msgspec.to_builtins(document, enc_hook=number), "") + "\n"


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
