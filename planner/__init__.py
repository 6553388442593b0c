"""Plans the communication of distributed deep-learning jobs, and proves how good each plan is.

``planner.solve(request)`` answers a request of the JSON interface given as plain values. The typed
interface has one module a problem (``planner.ibatch``, ``planner.caramel``, ``planner.yan``,
``planner.bml``, ``planner.bigdl``, ``planner.drizzle``, and
``planner.iteration`` for all of them together), each with a ``Problem``, a ``Plan`` and
``solve(problem, method=…, time_limit=…) -> Result``.
"""

TYPE_CHECKING = False  # `typing` and all below take longer to load than a user to press Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from planner import bigdl, bml, caramel, drizzle, ibatch, iteration, yan
    from planner.costs import AffineCost, TableCost
    from planner.errors import InvalidInputError, PlannerError
    from planner.graphs import Graph, Op, Parameter
    from planner.interference import Interference
    from planner.jsonio import solve
    from planner.profiles import Layer, Profile, Provenance
    from planner.results import Result, Status

__all__ = [
    "AffineCost",
    "Graph",
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
    "bigdl",
    "bml",
    "caramel",
    "drizzle",
    "ibatch",
    "iteration",
    "solve",
    "yan",
]

_HOMES = {
    "costs": ("AffineCost", "TableCost"),
    "errors": ("InvalidInputError", "PlannerError"),
    "graphs": ("Graph", "Op", "Parameter"),
    "interference": ("Interference",),
    "jsonio": ("solve",),
    "profiles": ("Layer", "Profile", "Provenance"),
    "results": ("Result", "Status"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> "Any":
    """Load what is asked for."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _HOME:
        return import_module(f"{__name__}.{name}")
    exported = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return exported


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
