"""Documents held against the schemas that `planner schema` prints."""

from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator, meta

from planner.jsonio import schema


@cache
def validator(name: str, part: str | None = None) -> Draft202012Validator:
    """Return what holds documents against a file's schema, or against a part of a problem's."""
    found = schema(name)
    return Draft202012Validator(found if part is None else found[part])


def validate(document: Any, name: str, part: str | None = None) -> None:
    validator(name, part).validate(document)


def fits(document: Any, name: str, part: str | None = None) -> bool:
    return validator(name, part).is_valid(document)


def check_schema(found: Any) -> None:
    """Refuse what is no schema."""
    meta.validate(found)
