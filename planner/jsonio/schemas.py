"""JSON Schema of all requests and answers, generated from the types that encode and decode them."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from planner.jsonio.clusters import ClusterDocument
from planner.jsonio.interfaces import PROBLEMS
from planner.jsonio.measurements import ComputationDocument, FitDocument
from planner.jsonio.network import NetworkDocument
from planner.jsonio.profiles import ProfileDocument
from planner.jsonio.runs import RunReport
from planner.jsonio.service import ErrorAnswer
from planner.jsonio.spark import SparkDocument
from planner.jsonio.tuned import TuneReport
from planner.jsonio.why import WhyReport
from planner.model.validation import MAX_VALUE, one_of

FILES: Mapping[str, type[Any]] = {
    "profile": ProfileDocument,
    "cluster": ClusterDocument,
    "network": NetworkDocument,
    "compute": ComputationDocument,
    "fit": FitDocument,
    "spark": SparkDocument,
    "run": RunReport,
    "why": WhyReport,
    "tune": TuneReport,
}
"""Types of the other files that commands read and write."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(problem: str | None = None) -> dict[str, Any]:
    """Return the schemas ``request``, ``answer``, ``error`` of a problem, or a file's schema.

    Without an argument, returns all of them by name.
    """
    names = (*PROBLEMS, *FILES)
    if problem is None:
        return {name: schema(name) for name in names}
    if problem in FILES:
        return _of(FILES[problem])
    interface = PROBLEMS[one_of(problem, names, "problem")]
    request, answer = _of(interface.request), _of(interface.answer)
    return {"request": request, "answer": answer, "error": _of(ErrorAnswer)}


def _of(kind: type[Any]) -> dict[str, Any]:
    return {"$schema": _DIALECT, **msgspec.json.schema(kind, schema_hook=_of_rate)}


def _of_rate(kind: type[Any]) -> dict[str, Any]:
    assert kind is Fraction  # the only type that msgspec does not know
    return {"type": "number", "minimum": 0, "maximum": MAX_VALUE}
