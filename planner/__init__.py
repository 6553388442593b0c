"""Plans the communication of distributed deep-learning jobs, and proves how good each plan is.

``planner.solve(request)`` answers a request of the JSON interface given as plain values. The typed
interface has one module a problem (``planner.ibatch``), each with a ``Problem``, a ``Plan`` and
``solve(problem, method=…, time_limit=…) -> Result``.
"""

from planner import ibatch
from planner.costs import AffineCost, TableCost, fit_affine, fit_table
from planner.errors import (
    InvalidInputError,
    InvalidPlanError,
    MeasurementError,
    MissingExtraError,
    NotApplicableError,
    PlannerError,
)
from planner.jsonio import solve
from planner.profiles import Layer, Profile, Provenance
from planner.results import Infeasibility, Result, Status

__all__ = [
    "AffineCost",
    "Infeasibility",
    "InvalidInputError",
    "InvalidPlanError",
    "Layer",
    "MeasurementError",
    "MissingExtraError",
    "NotApplicableError",
    "PlannerError",
    "Profile",
    "Provenance",
    "Result",
    "Status",
    "TableCost",
    "fit_affine",
    "fit_table",
    "ibatch",
    "solve",
]
