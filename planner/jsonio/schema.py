"""JSON Schema of every request and answer, generated from the types that decode and encode them."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from planner.errors import InvalidInputError
from planner.jsonio.clusters import ClusterDocument
from planner.jsonio.drizzle_measurements import GroupsDocument
from planner.jsonio.measurements import ComputationDocument, FitDocument
from planner.jsonio.network import NETWORK_RULES, NetworkDocument
from planner.jsonio.profiles import PROFILE_RULES, ProfileDocument
from planner.jsonio.runs import RunReport
from planner.jsonio.service import PROBLEMS, ErrorAnswer
from planner.jsonio.spark import SparkDocument
from planner.jsonio.why import WhyReport
from planner.validation import MAX_VALUE, shown

__all__ = ["FILES", "schema"]

FILES: Mapping[str, tuple[type[Any], Mapping[str, Any]]] = {
    "profile": (ProfileDocument, PROFILE_RULES),
    "cluster": (ClusterDocument, {}),
    "network": (NetworkDocument, NETWORK_RULES),
    "compute": (ComputationDocument, {}),
    "fit": (FitDocument, {}),
    "groups": (GroupsDocument, {}),
    "spark": (SparkDocument, {}),
    "run": (RunReport, {}),
    "why": (WhyReport, {}),
}
"""What commands write and print beside answers, and what schemas say beside the fields' types."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(problem: str | None = None) -> dict[str, Any]:
    """Return the schemas of one problem, or of everything.

    Parameters
    ----------
    problem : str, optional
        A problem's name, or one of `FILES`.

    Returns
    -------
    dict
        For a problem its ``request``, ``answer`` and ``error`` schemas; for a file its schema;
        without an argument all of these by name.

    Raises
    ------
    InvalidInputError
        If the name is unknown.
    """
    names = (*PROBLEMS, *FILES)
    if problem is None:
        return {name: schema(name) for name in names}
    if problem in FILES:
        kind, rules = FILES[problem]
        return {**_of(kind), **rules}
    if problem not in PROBLEMS:
        raise InvalidInputError(
            "problem", f"expected one of {', '.join(names)}, got {shown(problem)}"
        )
    interface = PROBLEMS[problem]
    request = {**_of(interface.request), **interface.request_rules}
    return {"request": request, "answer": _of(interface.answer), "error": _of(ErrorAnswer)}


def _of(kind: type[Any]) -> dict[str, Any]:
    return {"$schema": _DIALECT, **msgspec.json.schema(kind, schema_hook=_of_rate)}


def _of_rate(kind: type[Any]) -> dict[str, Any]:
    assert kind is Fraction  # the one type msgspec does not know
    return {"type": "number", "minimum": 0, "maximum": MAX_VALUE}
