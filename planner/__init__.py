"""Plans the communication of distributed deep-learning jobs, and proves how good each plan is.

``planner.solve(request)`` answers a request of the JSON interface given as plain values. The typed
interface has one module a problem (``planner.ibatch``, ``planner.caramel``, ``planner.yan``,
``planner.bml``, ``planner.bigdl``, ``planner.drizzle``, and
``planner.iteration`` for all of them together), each with a ``Problem``, a ``Plan`` and
``solve(problem, method=…, time_limit=…) -> Result``.
"""

from planner import bigdl, bml, caramel, drizzle, ibatch, iteration, yan
from planner.costs import AffineCost, TableCost
from planner.errors import InvalidInputError, PlannerError
from planner.graphs import Graph, Op, Parameter
from planner.jsonio import solve
from planner.profiles import Layer, Profile, Provenance
from planner.results import Result, Status

__all__ = [
    "AffineCost",
    "Graph",
    "InvalidInputError",
    "Layer",
    "Op",
    "Parameter",
    "PlannerError",
    "Profile",
    "Provenance",
    "Result",
    "Status",
    "TableCost",
    "bigdl",
    "bml",
    "caramel",
    "drizzle",
    "ibatch",
    "iteration",
    "solve",
    "yan",
]
