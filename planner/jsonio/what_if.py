"""The fields of a request that ask what a plan costs if the numbers are others, and their answers.

Each family whose problems can be perturbed takes them in the same form: its request is a
`WhatIfRequest`, and its `run` step is `planned`.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from msgspec import UNSET

from planner.jsonio.control import Controlled, tell, without_start
from planner.jsonio.outlook import (
    PercentileField,
    ProspectField,
    ScenariosField,
    asked,
    prospect_answer,
    unless_tied,
)
from planner.jsonio.regret import RegretField, RegretRequest, regret_answers
from planner.jsonio.types import or_none
from planner.solving.deadline import Control, Deadline
from planner.solving.family import Family
from planner.solving.result import Result
from planner.solving.scenarios import Outlook, Prospect
from planner.solving.what_if import Regret, regrets, robust_plan

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")


class WhatIfRequest(Controlled, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that may ask for regret, or for one plan for several scenarios."""

    regret: RegretRequest = False
    scenarios: ScenariosField = UNSET
    percentile: PercentileField = UNSET


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
    family: Family[ProblemT, PlanT, EvaluationT],
    request: Any,
    problem: ProblemT,
    control: Control[PlanT],
    to_outlook: Callable[[ProblemT], Outlook | None] | None = None,
) -> Foreseen[ProblemT, PlanT, EvaluationT]:
    """Return the plan that a request asks for: for its scenarios if there are any.

    A plan whose regret is asked for too has half of the time.

    Parameters
    ----------
    family : Family
        The family of the problem.
    request : WhatIfRequest
        The request, with a `method`.
    problem : Problem
        Its problem.
    control : Control
        How the family's `solve` is controlled.
    to_outlook : callable, optional
        Returns the scenarios; by default only those that the request lists.

    Raises
    ------
    InvalidInputError
        If the request is none, such as a scenario that changes what the family does not have.
    """
    limit, cancel = or_none(request.time_limit_s), control.get("cancel")
    deadline, prospect = Deadline.of(limit, cancel), None
    if limit is not None and request.regret:
        limit /= 2
    outlook = listed(request) if to_outlook is None else to_outlook(problem)
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    outlook = unless_tied(outlook, control.get("tie_break"), given)
    if outlook is None:
        result = family.solve(problem, method=request.method, time_limit=limit, **control)
    else:
        end = Deadline.of(limit, cancel)
        result, prospect = robust_plan(family, problem, outlook, end)
        result = without_start(result, control)
        tell(result, control)
    return Foreseen(family, problem, result, prospect, request.regret, deadline)


def listed(request: Any) -> Outlook | None:
    """Return the scenarios that a request lists; None without any."""
    return asked(
        scenarios=request.scenarios,
        percentile=request.percentile,
        spreads="scenarios",
        method=request.method,
    )
