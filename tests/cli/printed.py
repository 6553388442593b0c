"""Holds what commands print as JSON against the schema that names it."""

from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from planner.jsonio import PROBLEMS, schema


def closed(found: Any) -> Any:
    """Return a schema that knows every field: objects with fields have no others."""
    if isinstance(found, dict):
        inner = {name: closed(part) for name, part in found.items()}
        if found.get("type") == "object" and "properties" in found:
            inner.setdefault("additionalProperties", False)
        return inner
    return list(map(closed, found)) if isinstance(found, list | tuple) else found


@cache
def closed_validator(name: str, part: str | None = None) -> Draft202012Validator:
    found = schema(name)
    return Draft202012Validator(closed(found if part is None else found[part]))


def check_printed(name: str, document: Any) -> None:
    """Refuse a document that `planner schema NAME` does not describe, to its last field."""
    closed_validator(name).validate(document)


def check_answer(answer: Any) -> None:
    """Refuse an answer that is none of its problem, or no error."""
    name = answer.get("problem", next(iter(PROBLEMS)))
    closed_validator(name, "error" if "error" in answer else "answer").validate(answer)
