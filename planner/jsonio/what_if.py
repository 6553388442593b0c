"""The fields of a request that ask what a plan costs if the numbers are others, and their answers.

Each family whose problems can be perturbed takes them in the same form: its request is a
`WhatIfRequest`. The search of every request is `planned`.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from planner.jsonio.control import Controlled, tell, without_start
from planner.jsonio.outlook import (
    OutlookField,
    PercentileField,
    ProspectField,
    ScenariosField,
    asked,
    prospect_answer,
)
from planner.jsonio.regret import RegretField, RegretRequest, regret_answers
from planner.jsonio.types import or_none
from planner.solving.deadline import Control, Deadline
from planner.solving.family import Family
from planner.solving.result import Result
from planner.solving.scenarios import Outlook, Prospect
from planner.solving.what_if import Regret, regrets, robust_plan

__all__ = ["Foreseen", "SpreadRequest", "WhatIfFields", "WhatIfRequest", "planned"]

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")


class WhatIfRequest(Controlled, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that may ask for regret, or for one plan for several scenarios."""

    regret: RegretRequest = False
    scenarios: ScenariosField = UNSET
    percentile: PercentileField = UNSET

    def to_outlook(self, problem: Any) -> Outlook | None:
        """Return the scenarios that the request lists; None without any."""
        return asked(
            scenarios=self.scenarios,
            percentile=self.percentile,
            spreads="scenarios",
            method=self.method,  # type: ignore[attr-defined]  # which every request has
            tie_break=self.to_tie_break(),
        )

    def full_answer(self, foreseen: "Foreseen[Any, Any, Any]") -> Any:
        """Return the answer with its regret, if that was asked for, and its prospect."""
        return replace(super().full_answer(foreseen), **foreseen.fields)


class SpreadRequest(WhatIfRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request whose times may have spreads, so that their mean or a percentile may count."""

    chooses: ClassVar[str]
    """The method behind `auto`, which may be asked for with scenarios."""

    spread_fields: ClassVar[str]
    """The fields that would give spreads."""

    outlook: OutlookField = UNSET

    def has_spreads(self, problem: Any) -> bool:
        """Return whether the problem knows the spreads of measured times."""
        return any(op.spread_ns for op in problem.graph.ops)

    def to_outlook(self, problem: Any) -> Outlook | None:
        """Return the scenarios to plan for; None for the nominal times."""
        return asked(
            outlook=self.outlook,
            scenarios=self.scenarios,
            percentile=self.percentile,
            spreads="" if self.has_spreads(problem) else f"{self.spread_fields}, or scenarios",
            method=self.method,  # type: ignore[attr-defined]  # which every request has
            chooses=self.chooses,
            target=problem.target,
            tie_break=self.to_tie_break(),
        )


class WhatIfFields(TypedDict):
    """What is added to an answer."""

    regret: RegretField
    prospect: ProspectField


class Foreseen(NamedTuple, Generic[ProblemT, PlanT, EvaluationT]):
    """A result, and what is needed to say what it costs if the numbers are others."""

    family: Family[ProblemT, PlanT, EvaluationT]
    problem: ProblemT
    result: Result[PlanT, EvaluationT]
    prospect: Prospect | None
    wanted: bool
    deadline: Deadline

    def regrets(self, progress: Callable[[str], None] | None = None) -> tuple[Regret, ...] | None:
        """Return the regret of the plan in each scenario; None if nobody asked, or without it."""
        if not self.wanted or self.result.plan is None:
            return None
        return regrets(self.family, self.problem, self.result.plan, self.deadline, progress)

    @property
    def fields(self) -> WhatIfFields:
        """The fields of the answer. The regret is worked out here."""
        objective = self.result.objective_ns or 0
        return {
            "regret": regret_answers(self.regrets()),
            "prospect": prospect_answer(self.prospect, objective),
        }


def planned(
    request: Controlled, problem: ProblemT, control: Control[Any]
) -> Foreseen[ProblemT, Any, Any]:
    """Return the plan that a request asks for: for its scenarios if there are any.

    A plan whose regret is asked for too has half of the time.

    Parameters
    ----------
    request : Controlled
        The request, with a `method`.
    problem : Problem
        Its problem.
    control : Control
        How the family's `solve` is controlled.

    Raises
    ------
    InvalidInputError
        If the request is none, such as a scenario that changes what the family does not have.
    """
    family, outlook, wanted = request.family, None, False
    if isinstance(request, WhatIfRequest):
        outlook, wanted = request.to_outlook(problem), request.regret
    limit, cancel = or_none(request.time_limit_s), control.get("cancel")
    deadline, prospect = Deadline.of(limit, cancel), None
    if limit is not None and wanted:
        limit /= 2
    if outlook is None:
        method: str = request.method  # type: ignore[attr-defined]  # which every request has
        result = family.solve(problem, method=method, time_limit=limit, **control)
    else:
        end = Deadline.of(limit, cancel)
        result, prospect = robust_plan(family, problem, outlook, end)
        result = without_start(result, control)
        tell(result, control)
    return Foreseen(family, problem, result, prospect, wanted, deadline)
