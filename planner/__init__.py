"""Plans the communication of distributed deep-learning jobs, and proves how good each plan is.

``planner.solve(request)`` answers a request of the JSON interface given as plain values;
``planner.solve_or_raise`` raises where that answers with an error. The typed
interface has one module a problem (``planner.ibatch``, ``planner.caramel``, ``planner.yan``,
``planner.bml``, ``planner.bigdl``, ``planner.drizzle``, ``planner.fsdp``, and
``planner.iteration`` for all of them together), each with a ``Problem``, a ``Plan`` and
``solve(problem, method=…, time_limit=…) -> Result``.
"""

from planner.model.loading import loader

TYPE_CHECKING = False  # `typing` and all below take longer to load than a user to press Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from planner import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
    from planner.jsonio import read_cluster, read_profile, solve, solve_many, solve_or_raise
    from planner.jsonio.generic import register
    from planner.model.clusters import Cluster
    from planner.model.contention import Interference
    from planner.model.costs import AffineCost, TableCost
    from planner.model.errors import InvalidInputError, PlannerError
    from planner.model.graphs import Graph, Op, Parameter
    from planner.model.layers import Layer
    from planner.model.profiles import Profile, Provenance
    from planner.runtime import tune
    from planner.solving.deadline import Cancel, Control, Incumbent
    from planner.solving.result import Result, Status

    __version__: str

__all__ = [
    "AffineCost",
    "Cancel",
    "Cluster",
    "Control",
    "Graph",
    "Incumbent",
    "Interference",
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
    "__version__",
    "bigdl",
    "bml",
    "caramel",
    "drizzle",
    "fsdp",
    "ibatch",
    "iteration",
    "overlap",
    "read_cluster",
    "read_profile",
    "register",
    "solve",
    "solve_many",
    "solve_or_raise",
    "tune",
    "yan",
]

_HOMES = {
    "model.clusters": ("Cluster",),
    "model.costs": ("AffineCost", "TableCost"),
    "solving.deadline": ("Cancel", "Control", "Incumbent"),
    "model.errors": ("InvalidInputError", "PlannerError"),
    "model.graphs": ("Graph", "Op", "Parameter"),
    "model.contention": ("Interference",),
    "model.machine": ("VERSION",),
    "jsonio": ("read_cluster", "read_profile", "solve", "solve_many", "solve_or_raise"),
    "jsonio.generic": ("register",),
    "model.profiles": ("Layer", "Profile", "Provenance"),
    "solving.result": ("Result", "Status"),
    "runtime": ("tune",),
}
_FAMILIES = ("bigdl", "bml", "caramel", "drizzle", "fsdp", "ibatch", "iteration", "overlap", "yan")

_load = loader(__name__, _HOMES | dict.fromkeys(_FAMILIES, ()))


def __getattr__(name: str) -> "Any":
    """Load what is asked for."""
    return _load("VERSION" if name == "__version__" else name)


def __dir__() -> list[str]:
    return list(__all__)
