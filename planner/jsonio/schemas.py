"""JSON Schema of all requests and answers, generated from the types that encode and decode them."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from planner.jsonio.clusters import ClusterDocument
from planner.jsonio.interfaces import PROBLEMS
from planner.jsonio.measurements import ComputationDocument, FitDocument
from planner.jsonio.network import NETWORK_RULES, NetworkDocument
from planner.jsonio.profiles import PROFILE_RULES, ProfileDocument
from planner.jsonio.runs import RunReport
from planner.jsonio.service import ErrorAnswer
from planner.jsonio.spark import SparkDocument
from planner.jsonio.why import WhyReport
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE, did_you_mean, shown

FILES: Mapping[str, tuple[type[Any], Mapping[str, Any]]] = {
    "profile": (ProfileDocument, PROFILE_RULES),
    "cluster": (ClusterDocument, {}),
    "network": (NetworkDocument, NETWORK_RULES),
    "compute": (ComputationDocument, {}),
    "fit": (FitDocument, {}),
    "spark": (SparkDocument, {}),
    "run": (RunReport, {}),
    "why": (WhyReport, {}),
}
"""Types of the other files that commands read and write, and their schema rules."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(problem: str | None = None) -> dict[str, Any]:
    """Return the schemas ``request``, ``answer``, ``error`` of a problem, or a file's schema.

    Without an argument, returns all of them by name.
    """
    names = (*PROBLEMS, *FILES)
    if problem is None:
        return {name: schema(name) for name in names}
    if problem in FILES:
        kind, rules = FILES[problem]
        return {**_of(kind), **rules}
    if problem not in PROBLEMS:
        hint = did_you_mean(problem, names)
        raise InvalidInputError(
            "problem",
            f"expected one of {', '.join(names)}, got {shown(problem)}{hint and f' ({hint})'}",
        )
    interface = PROBLEMS[problem]
    request = {**_of(interface.request), **interface.request_rules}
    return {"request": request, "answer": _of(interface.answer), "error": _of(ErrorAnswer)}


def _of(kind: type[Any]) -> dict[str, Any]:
    return {"$schema": _DIALECT, **msgspec.json.schema(kind, schema_hook=_of_rate)}


def _of_rate(kind: type[Any]) -> dict[str, Any]:
    assert kind is Fraction  # the only type that msgspec does not know
    return {"type": "number", "minimum": 0, "maximum": MAX_VALUE}
