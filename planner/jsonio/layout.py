"""Layout of JSON files that people read and edit."""

import json
from fractions import Fraction
from typing import Any

import msgspec

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


def number(value: Fraction) -> float:
    """Return a fraction as a JSON number: an int if whole, else a float."""
    return int(value) if value.denominator == 1 else float(value)
