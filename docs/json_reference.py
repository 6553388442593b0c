"""Makes the JSON reference: a page for each problem, with every field of its requests and answers.

Types, limits, defaults and units are those of `planner schema`; what a field means stands in
`json_fields.toml`, written by hand, and is shown beside them.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.jsonio import schema

MEANINGS = tomllib.loads((Path(__file__).parent / "json_fields.toml").read_text(encoding="utf-8"))

UNITS = {"nanoseconds": "ns", "bytes": "bytes", "seconds": "s"}
SUFFIXES = (
    ("_bytes_per_s", "bytes/s"),
    ("_bits_per_s", "bits/s"),
    ("_ns_per_byte", "ns/byte"),
    ("_ns", "ns"),
    ("_bytes", "bytes"),
    ("_s", "s"),
)
COLUMNS = ("field", "type", "unit", "default", "meaning")

_CLASS = "```{rst-class} fields\n```\n\n"

Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    """Return the pages by their names, and "index"."""
    schemas = schema()
    return {"index": _index(list(schemas))} | {name: page(name, schemas[name]) for name in schemas}


def page(name: str, found: Schema) -> str:
    """Return the page of one problem, or of another file, such as a profile."""
    if "request" not in found:
        return f"# `{name}`\n\n" + "\n".join(_tables(found, name, "", set()))
    seen: set[str] = set()
    origin = f"`planner schema {name}` prints this as JSON Schema; [an example](../../json.md)."
    return "\n".join(
        (
            f"# `{name}`\n",
            f"{origin}\n",
            "## Request\n",
            *_tables(found["request"], name, "request", seen),
            "## Answer\n",
            *_tables(found["answer"], name, "answer", seen),
        )
    )


def meanings(name: str, part: str) -> dict[str, str]:
    """Return what fields mean: of a `"request"` or `"answer"`, or of an object with this title."""
    said: dict[str, str] = {}
    for group in (MEANINGS["common"], MEANINGS.get(name, {})):
        for fields, text in group.get(part, {}).items():
            first, *others = fields.split(", ")
            linked = re.sub(r"\]\((?!http)", "](../../", text)
            together = ", ".join(f"`{field}`" for field in (first, *others))
            said[first] = f"{together}: {linked}" if others else linked
            said |= dict.fromkeys(others, f"see `{first}`")
    return said


def _tables(found: Schema, name: str, kind: str, seen: set[str]) -> Iterator[str]:
    """Yield the main object, then the ones inside it that no table has shown yet."""
    main = _name(found)
    for title, body in sorted(found["$defs"].items(), key=lambda item: item[0] != main):
        if title in seen:
            continue
        seen.add(title)
        if kind == "" or title != main:
            yield f"{'###' if kind else '##'} {title}\n"
        yield _paragraphs(body.get("description", "")) + "\n"
        yield _table(field_rows(body, meanings(name, kind if kind and title == main else title)))


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table without the columns in which nothing stands."""
    columns = [
        (head, cells)
        for head, cells in zip(COLUMNS, zip(*rows, strict=True), strict=True)
        if any(cells)
    ]
    lines = [
        [head for head, _ in columns],
        ["---"] * len(columns),
        *zip(*(cells for _, cells in columns), strict=True),
    ]
    return _CLASS + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def field_rows(body: Schema, said: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield field, type, unit, default and meaning of each property, ready for a table."""
    for field, shape in body["properties"].items():
        own = shape.get("description", "")
        text = said.get(field) or ("" if own in UNITS else own)
        yield (
            f"`{field}`",
            _type(shape),
            _unit(field, shape),
            _default(field, shape, body),
            text.replace("|", r"\|"),
        )


def _default(field: str, shape: Schema, body: Schema) -> str:
    if field in body.get("required", ()):
        return "required"
    if shape.get("default", "") == "" or isinstance(shape["default"], dict | list | tuple):
        return ""  # defaults of an object stand in its own table
    value = shape["default"]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(shape: Schema) -> str:
    if "$ref" in shape:
        name = _name(shape)
        return f"[{name}](#{name.lower()})"
    if "enum" in shape:
        return ", ".join(f"`{value}`" for value in shape["enum"])
    if "anyOf" in shape:
        return " or ".join(_type(choice) for choice in shape["anyOf"])
    if "prefixItems" in shape:
        return "[" + ", ".join(_type(item) for item in shape["prefixItems"]) + "]"
    if shape.get("type") == "array":
        return f"list of {_type(shape['items'])}" if shape.get("items") else "list"
    if isinstance(shape.get("additionalProperties"), dict):
        return f"object of {_type(shape['additionalProperties'])}"
    return f"{shape.get('type', 'any')}{_limits(shape)}"


def _limits(shape: Schema) -> str:
    limits = [
        f"{sign} {_number(shape[key])}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        # 2^62 and what lies beyond it are said once, on the page about the interface.
        if key in shape
        and abs(shape[key]) < 2**62
        and not (key == "minimum" and "exclusiveMinimum" in shape)
    ]
    return f" {', '.join(limits)}" if limits else ""


def _number(value: float) -> str:
    whole = int(value)
    if whole == value and whole > 1024 and whole & (whole - 1) == 0:
        return f"2^{whole.bit_length() - 1}"
    return "10^9" if value == 1e9 else str(value)


def _unit(field: str, shape: Schema) -> str:
    for suffix, unit in SUFFIXES:
        if field == suffix[1:] or field.endswith(suffix):
            return unit
    inner = [shape, *_inside(shape)]
    units = {UNITS[one["description"]] for one in inner if one.get("description") in UNITS}
    return units.pop() if len(units) == 1 else ""


def _inside(shape: Schema) -> Iterator[Schema]:
    items = shape.get("items")
    for part in (items if isinstance(items, dict) else None, *shape.get("anyOf", ())):
        if part:
            yield part
            yield from _inside(part)


def _name(shape: Schema) -> str:
    return str(shape["$ref"]).rpartition("/")[2]


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _index(names: list[str]) -> str:
    listed = "\n".join(names)
    return f"""# Fields of requests and answers

A page for each problem, made from `planner schema`: every field with its type, limits, unit and
default, and what it means. Whole numbers go up to 2^62 where no limit is shown. How requests are
sent, limited and refused is on the page of [the JSON interface](../../json.md).

```{{toctree}}
:maxdepth: 1

{listed}
```
"""
