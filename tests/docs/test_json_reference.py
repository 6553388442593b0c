"""The generated JSON reference has every field, and every field of a request an explanation."""

import json
import re
from typing import Any

import json_reference as reference
import pytest

from planner.jsonio import PROBLEMS, schema


def properties(value: Any) -> set[str]:
    """Return the names of all properties anywhere in a schema."""
    if isinstance(value, dict):
        own = set(value.get("properties", ())) if value.get("type") == "object" else set()
        return own.union(*map(properties, value.values()))
    return set().union(*map(properties, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", schema())
def test_every_property_has_a_row(name: str) -> None:
    found = schema(name)
    text = reference.page(name, found)
    rows: list[list[str]] = []
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        assert len({len(row) for row in cells}) == 1
        rows += cells
    parts = {key: found[key] for key in ("request", "answer") if key in found} or found
    # JSON Schema names a property in quotes; so whatever the page's tables say, none is missing.
    assert {row[0].strip(" `") for row in rows} >= properties(json.loads(json.dumps(parts)))


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_field_of_a_request_is_explained(name: str) -> None:
    """In the meanings written by hand, or in the schema by more than a unit."""
    asked = reference.MEANINGS[name]["request"]
    asked = {field for fields in asked for field in fields.split(", ")}
    found = schema(name)["request"]
    main = found["$defs"][found["$ref"].rpartition("/")[2]]
    explained = {
        field
        for field, shape in main["properties"].items()
        if shape.get("description", "nanoseconds") not in reference.UNITS
    }
    assert set(main["properties"]) - {"problem", "time_limit_s"} - asked - explained == set()


def test_every_meaning_is_of_a_field() -> None:
    for name in set(reference.MEANINGS) - {"common"}:
        found = schema(name)
        for part, texts in reference.MEANINGS[name].items():
            explained = {field for fields in texts for field in fields.split(", ")}
            of = found["$defs"][part] if "$defs" in found else found[part]
            fields = set(of["properties"]) if "$defs" in found else properties(of)
            assert explained - fields == set()
