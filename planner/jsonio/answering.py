"""How a request of any family is answered: a plan, and what else was asked for."""

from typing import Any, Unpack

from planner.deadline import Control, Deadline
from planner.jsonio.control import Controlled, Extras, tell, without_start
from planner.jsonio.heads import Head, warned
from planner.jsonio.outlook import WhatIfRequest
from planner.jsonio.types import or_none
from planner.solving.what_if import robust_plan

__all__ = ["run"]


def run(request: Controlled, **control: Unpack[Control[Any]]) -> Any:
    """Answer one request of any family.

    Parameters
    ----------
    request : Controlled
        The request. If it asks for the regret, the plan gets half the time.
    **control
        See `planner.Control`.
    """
    family, problem = request.family, request.to_problem()
    request.refuse(problem)
    limit, cancel = or_none(request.time_limit_s), control.get("cancel")
    end = Deadline.of(limit, cancel)
    outlook, prospect = None, None
    if isinstance(request, WhatIfRequest):
        limit = limit / 2 if limit is not None and request.regret else limit
        outlook = request.to_outlook(problem)
    if outlook is None:
        method: str = request.method  # type: ignore[attr-defined]  # which every request has
        result = family.solve(problem, method=method, time_limit=limit, **control)
    else:
        result, prospect = robust_plan(family, problem, outlook, Deadline.of(limit, cancel))
        result = without_start(result, control)
        tell(result, control)
    made: Head = request.full_answer(problem, result, Extras(end, prospect))
    return warned(made, request.doubts(result))
