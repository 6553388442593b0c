"""An answer held against its request: the plan is priced again, and what follows is compared.

Problem. An answer comes from a file. Is all of it true?

Method. With the request: the plan that the answer holds is checked and priced by its family, the
answer is built again from problem and plan, and every field has to be the same. What takes a search
of its own is left out (`SEARCHED`): the bound, and what else stands beside a plan. Without the
request nobody can tell; then each family's reader refuses what contradicts itself
(`Interface.view`).

Complexity. That of pricing a plan. Source. Own.
"""

from typing import Any

import msgspec
from msgspec import UNSET

from planner.jsonio.control import Controlled
from planner.jsonio.heads import Head
from planner.jsonio.results import PlanDocument, plan_of, refuse_other
from planner.model.errors import InvalidInputError
from planner.model.validation import check_same, inside, shown
from planner.solving.deadline import NEVER
from planner.solving.result import Result

__all__ = ["SEARCHED", "check_against", "refuse_fields"]

SEARCHED = frozenset(
    {
        "advice",
        "alternatives",
        "landscape",
        "pareto",
        "plan",
        "profile_threads",
        "prospect",
        "regret",
        "runtime_s",
        "scheduling",
        "sensitivity",
        "sizing",
        "targets",
        "warnings",
        "why",
    }
)
"""Fields that do not follow from the problem and the plan alone."""


def check_against(request: Controlled, answer: Head) -> None:
    """Refuse an answer that is none to a request.

    Parameters
    ----------
    request : Controlled
        What was asked.
    answer : Head
        With its plan.

    Raises
    ------
    InvalidInputError
        With the path of the first field that says something else than the plan does.
    """
    check_same(answer.problem, request.problem, "problem")  # type: ignore[attr-defined]
    if answer.plan is UNSET:
        raise InvalidInputError(
            "plan", 'missing: only an answer to a request with "with_plan": true can be checked'
        )
    family, problem = request.family, request.problem_of(answer)
    with inside("plan"):
        plan = plan_of(PlanDocument(kind=answer.plan.kind, plan=answer.plan.plan))
        if not isinstance(plan, family.plan_type):
            raise InvalidInputError(
                "kind", f"expected a plan of {answer.problem}, got {shown(answer.plan.kind)}"
            )
        evaluation, objective = family.priced(problem, plan, NEVER)
    check_same(answer.objective_ns, objective, "objective_ns")
    result = Result(
        answer.method,
        plan,
        objective,
        answer.lower_bound_ns,
        answer.runtime_s,
        answer.status == "time_limit",
        evaluation=evaluation,
    )
    refuse_other(_following(answer), _following(request.answer_of(problem, result)))


def _following(answer: Head) -> dict[str, Any]:
    """Return the fields of an answer that follow from the problem and the plan."""
    fields: dict[str, Any] = msgspec.to_builtins(answer)
    # Whether there was time to check the program.
    fields.get("synchronisation", {}).get("program", {}).pop("checked", None)
    return {name: value for name, value in fields.items() if name not in SEARCHED}


def refuse_fields(answer: Head, right: dict[str, Any]) -> None:
    """Refuse an answer that says something else in some fields than it has to.

    Raises
    ------
    InvalidInputError
        With the path of the first.
    """
    for name, value in right.items():
        stated = getattr(answer, name)
        if stated is not UNSET:
            refuse_other(msgspec.to_builtins(stated), msgspec.to_builtins(value), name)
