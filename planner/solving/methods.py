"""Methods: their outcomes, and their origins: a module, a plug-in or another method."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import Any, Generic, TypeAlias

from planner.model.errors import NotApplicableError, PluginError
from planner.model.validation import shown
from planner.solving.deadline import Deadline
from planner.solving.plugins import plugged
from planner.solving.result import Infeasibility, PlanT, ProblemT

REPLAN = "replan"
"""The method of every family that starts from an old plan and ends within milliseconds."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[PlanT]):
    """The outcome of a method: a plan, or why there is none, and a proven lower bound."""

    plan: PlanT | None  # None exactly if `infeasibility` is given
    lower_bound: int | Fraction | None = None  # (ns) on every plan, proved on the way, if any
    timed_out: bool = False  # whether the deadline ended the search
    infeasibility: Infeasibility | None = None  # why there is no plan
    method: str = ""  # that made the plan, if the method called only chose among others


Method: TypeAlias = Callable[[ProblemT, Deadline], Outcome[PlanT]]


def named(name: str, method: Method[ProblemT, PlanT]) -> Method[ProblemT, PlanT]:
    """Return a method whose outcomes carry this name."""

    def answered(problem: ProblemT, deadline: Deadline) -> Outcome[PlanT]:
        return replace(method(problem, deadline), method=name)

    return answered


def lazy_method(module: str, name: str, library: str = "") -> Method[Any, Any]:
    """Return a method whose module, and the libraries it needs, are imported when it is used.

    `library` is the solver it needs, for the error if that cannot be imported.
    """

    def method(problem: Any, deadline: Deadline) -> Outcome[Any]:
        try:
            solve: Method[Any, Any] = getattr(import_module(module), name)
        except ImportError as error:
            if not library:
                raise
            raise NotApplicableError("method", f"{library} cannot be loaded: {error}") from None
        return solve(problem, deadline)

    return method


def with_plugins(
    family: str, methods: Mapping[str, Method[ProblemT, PlanT]]
) -> dict[str, Method[ProblemT, PlanT]]:
    """Return a family's own methods and those that other packages add."""
    others = plugged(f"methods.{family}").items()
    added = {name: _unproven(name, run) for name, run in others if name not in methods}
    return {**methods, **added}


def _unproven(name: str, run: Callable[..., Any]) -> Method[Any, Any]:
    """Return another package's method, with the lower bounds of its outcomes removed."""

    def method(problem: Any, deadline: Deadline) -> Outcome[Any]:
        outcome = run(problem, deadline)
        if not isinstance(outcome, Outcome):
            raise PluginError(f"method {name}: expected an Outcome, got {shown(outcome)}")
        return replace(outcome, lower_bound=None, method=name)

    return method


def without_auto(methods: Iterable[str]) -> list[str]:
    """Return the names of methods without `auto`, which chooses one of them."""
    return [name for name in methods if name != "auto"]
