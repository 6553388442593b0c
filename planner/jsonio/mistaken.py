"""Recognise a document of another type than expected, and tell the user where it belongs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.model.errors import InvalidInputError

Kind = Literal["plan", "request", "cluster", "profile", "network"]


@dataclass(frozen=True, slots=True)
class _Document:
    """Marks of a document type, and its texts for error messages."""

    marks: tuple[tuple[str, ...], ...]
    called: str
    belongs: str


_PLANS = "planner plan PROFILE, or planner compare PROFILE,"
_KINDS: Mapping[Kind, _Document] = {
    "plan": _Document(
        (("problem", "status"),), "a plan", "planner draw, export and run take it as PLAN"
    ),
    "request": _Document((("problem",),), "a request", "planner solve answers it"),
    "cluster": _Document(
        (("machines", "topology"), ("machines", "nic"), ("topology", "nic")),
        "a cluster",
        "planner plan, report and compare take it as --cluster",
    ),
    "profile": _Document(
        (("layers",), ("ops",)), "a profile", f"{_PLANS} with -o plan.json plans with it"
    ),
    "network": _Document(
        (("network",),), "a measured network", "planner compare takes it as --network"
    ),
}
"""Document types by fields that only they have; the first match counts."""


def instead(value: Any, wanted: Kind) -> str:
    """Return such as ``got a request: planner solve answers it``; empty if the type may fit."""
    if not isinstance(value, Mapping):
        return ""
    kind = next((kind for kind in _KINDS if _is(value, kind)), wanted)
    return "" if kind == wanted else f"got {_KINDS[kind].called}: {_KINDS[kind].belongs}"


def refuse_other(value: Any, wanted: Kind) -> None:
    """Raise an error if a document is plainly of another type than `wanted`."""
    other = instead(value, wanted)
    if other:
        raise InvalidInputError("", f"expected {_KINDS[wanted].called}, {other}")


def _is(value: Mapping[str, Any], kind: Kind) -> bool:
    return any(all(field in value for field in marks) for marks in _KINDS[kind].marks)
