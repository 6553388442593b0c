"""Lossless JSON form of typed plans of every family, to store and restore them.

Answers (`planner.jsonio.solve`) explain a plan; these documents hold its fields. A fraction is
written ``"3/7"``.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import is_dataclass, replace
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import Struct

from planner.jsonio.decoding import decode, typed
from planner.jsonio.interfaces import PROBLEMS
from planner.model.errors import InvalidInputError
from planner.model.validation import inside, one_of, shown

_FRACTION = "-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?"
"""A fraction as text; longer integers would exceed Python's limit on digits."""


class PlanDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan of any family, as `encode_plan` writes it."""

    kind: str
    plan: Any


def encode_plan(plan: Any) -> str:
    """Return a plan of any family as JSON text.

    Raises
    ------
    InvalidInputError
        If the value is not a plan.
    """
    return _text(_plan_document(plan))


def decode_plan(data: bytes | str) -> Any:
    """Read a plan that `encode_plan` wrote.

    Only its form is checked; the family's ``check`` tells whether it fits a problem.

    Raises
    ------
    InvalidInputError
        If the text is not a plan, with the path of the first wrong field.
    """
    return plan_of(typed(decode(data), PlanDocument))


def _plan_document(plan: Any, problems: Iterable[str] = PROBLEMS) -> PlanDocument:
    """Return a plan with its kind; raise InvalidInputError if the value is not a plan."""
    for name in problems:
        if type(plan) in PROBLEMS[name].plans:
            return PlanDocument(kind=f"{name}.{type(plan).__name__}", plan=plan)
    raise InvalidInputError("plan", f"expected one of {', '.join(_kinds())}, got {shown(plan)}")


def _kinds() -> list[str]:
    return [f"{name}.{plan.__name__}" for name in PROBLEMS for plan in PROBLEMS[name].plans]


def plan_of(document: PlanDocument) -> Any:
    """Return the typed plan of a document."""
    name, _, kind = document.kind.partition(".")
    plans = {plan.__name__: plan for plan in PROBLEMS[name].plans} if name in PROBLEMS else {}
    if kind not in plans:
        one_of(document.kind, _kinds(), "kind")
    return _exact(document.plan, plans[kind], "plan")


def _exact(value: Any, kind: type[Any], path: str) -> Any:
    """Return a typed value; raise an error if a field is missing or unknown."""
    with inside(path):
        made = typed(value, kind, _fraction)
        if is_dataclass(made) and not isinstance(made, type):
            # Set fields that were left out; encoding would leave them out again, unseen by `_same`.
            made = replace(made)
        _same(value, decode(_text(made)), "")
    return made


def _same(given: Any, written: Any, path: str) -> None:
    """Raise an error unless the value is exactly what encoding would write again."""
    if isinstance(written, dict) and isinstance(given, dict):
        for name in (*written, *given):
            where = f"{path}.{name}" if path else name
            if name not in given:
                raise InvalidInputError(where, "missing")
            if name not in written:
                raise InvalidInputError(where, "unknown field")
            _same(given[name], written[name], where)
    elif isinstance(written, list) and isinstance(given, list) and len(given) == len(written):
        for place, pair in enumerate(zip(given, written, strict=True)):
            _same(*pair, f"{path}[{place}]")
    elif given != written:
        raise InvalidInputError(path, f"expected {shown(written)}, got {shown(given)}")


def plain_plan(plan: Any, problem: str) -> dict[str, Any]:
    """Return a plan of a problem's family as plain values, in the form of `encode_plan`."""
    return _plain(_plan_document(plan, [problem]))


def _plain(document: Any) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(document, enc_hook=_written, order="deterministic")
    return values


def _text(document: Any) -> str:
    # msgspec alone cannot write integers of more than 64 bits.
    return json.dumps(_plain(document), ensure_ascii=False) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, Fraction):
        return str(value)
    raise NotImplementedError(type(value).__name__)


def _fraction(kind: type[Any], value: Any) -> Fraction:
    assert kind is Fraction
    if isinstance(value, str) and re.fullmatch(_FRACTION, value):
        return Fraction(value)
    raise ValueError('Expected a fraction such as "3/7"')
