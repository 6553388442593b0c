"""Results: a plan, its objective and a proven lower bound.

`status` is derived, never claimed: `optimal` exactly when the objective equals the bound.
"""

from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from planner.model.units import counted, format_ns

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")


class Status(StrEnum):
    """Quality of a plan: optimal, feasible, infeasible, or cut short by the time limit."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    TIME_LIMIT = "time_limit"


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Why there is no plan."""

    reason: str  # one sentence for the user
    binding: tuple[str, ...]  # fields of the problem, or constraints, that bind
    layers: tuple[int, ...] = ()  # layers concerned; empty if none in particular


_WIDTH = 76
"""Plans with longer texts (characters) are printed as the number of their parts."""


@dataclass(frozen=True, slots=True, repr=False)
class Result(Generic[PlanT, EvaluationT]):
    """A solver's answer; `print` shows it as a table.

    Attributes
    ----------
    method : str
        Method that made the plan: the requested one, or the one that `auto` chose.
    plan : PlanT or None
        The plan; None exactly when `infeasibility` is given.
    objective_ns : int or None
        Cost of the plan, computed outside the solver.
    lower_bound_ns : int or None
        Proven lower bound on the cost of every plan; None if unknown.
    runtime_s : float
        Wall-clock time of the solver.
    timed_out : bool
        Whether the time limit cut the search, or the proof, short.
    infeasibility : Infeasibility or None
        Why there is no plan.
    evaluation : EvaluationT or None
        Detailed cost of the plan, by its family; None without a plan.
    warnings : tuple of str
        What was not done as requested, such as why a start plan was ignored.
    """

    method: str
    plan: PlanT | None
    objective_ns: int | None
    lower_bound_ns: int | None
    runtime_s: float
    timed_out: bool = False
    infeasibility: Infeasibility | None = None
    evaluation: EvaluationT | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.plan is None) != (self.infeasibility is not None):
            raise ValueError("a result has either a plan or the reason why there is none")
        if (self.plan is None) != (self.objective_ns is None):
            raise ValueError("a plan has an objective, and only a plan has one")
        if (
            self.objective_ns is not None
            and self.lower_bound_ns is not None
            and self.objective_ns < self.lower_bound_ns
        ):
            raise ValueError(
                f"the plan costs {self.objective_ns}, less than the bound {self.lower_bound_ns}"
            )

    @property
    def status(self) -> Status:
        """`optimal` exactly when the objective equals the lower bound."""
        if self.plan is None:
            return Status.TIME_LIMIT if self.timed_out else Status.INFEASIBLE
        if self.objective_ns == self.lower_bound_ns:
            return Status.OPTIMAL
        return Status.TIME_LIMIT if self.timed_out else Status.FEASIBLE

    @property
    def gap(self) -> float | None:
        """Relative distance to the lower bound; None if unknown."""
        if self.objective_ns is None or self.lower_bound_ns is None:
            return None
        if self.objective_ns == self.lower_bound_ns:
            return 0.0
        if self.lower_bound_ns == 0:
            return float("inf")
        return self.objective_ns / self.lower_bound_ns - 1.0

    def __repr__(self) -> str:
        return (
            f"Result({self.method}: {self.status.value}, objective_ns={self.objective_ns}, "
            f"lower_bound_ns={self.lower_bound_ns})"
        )

    def __str__(self) -> str:
        bound, gap = self.lower_bound_ns, self.gap
        rows = [("status", self.status.value), ("method", self.method)]
        if self.objective_ns is not None:
            rows.append(("objective", format_ns(self.objective_ns)))
        if bound is not None:
            rows.append(("lower bound", format_ns(bound)))
        if gap is not None and bound:
            rows.append(("above bound", f"{gap:.2%}"))
        rows.append(("run time", format_ns(round(self.runtime_s * 10**9))))
        if self.infeasibility is None:
            rows.append(("plan", _brief(self.plan)))
        else:
            rows.append(("no plan", self.infeasibility.reason))
        rows += [("warning", warning) for warning in self.warnings]
        return "\n".join(f"{name:<13}{text}" for name, text in rows)


def _brief(plan: Any) -> str:
    """Return a plan as text; for a long plan, the number of its parts and its other fields."""
    text = repr(plan)
    if len(text) <= _WIDTH:
        return text
    parts = []
    for field in fields(plan) if is_dataclass(plan) else ():
        value, name = getattr(plan, field.name), field.name.replace("_", " ")
        if isinstance(value, tuple) and value and name.endswith("s"):
            parts.append(counted(len(value), name.removesuffix("s"), name))
        elif isinstance(value, str) or (isinstance(value, int) and value is not False):
            parts.append(name if value is True else f"{name} {value}")
    text = ", ".join(parts) or text
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
