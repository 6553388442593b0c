"""An old plan as one of a problem whose numbers have changed: the closed form needs none of it.

Its stages, with what each waits for, must be those of the problem, whose tasks may have changed.

Guarantee and complexity: those of `planner.drizzle.closed_form`. Source: own.
"""

from dataclasses import replace

from planner.deadline import Deadline
from planner.drizzle.closed_form import solve_exact
from planner.drizzle.problem import Plan, Problem
from planner.drizzle.stages import triggers_of
from planner.errors import InvalidPlanError
from planner.solving.methods import Outcome

__all__ = ["adapt", "refit"]


def adapt(problem: Problem, plan: Plan) -> Plan:
    """Return an old plan with the tasks of the problem's stages.

    Raises
    ------
    InvalidPlanError
        If it has other stages.
    """
    stages = triggers_of(tuple(problem.stages))
    known = {row.name: (set(row.after), set(row.after_previous)) for row in stages}
    old = {row.name: (set(row.after), set(row.after_previous)) for row in plan.stages}
    if old != known:
        raise InvalidPlanError("stages", f"expected {sorted(known)} with what each waits for")
    return replace(plan, stages=stages)


def refit(problem: Problem, _: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return the best plan: it is there at once."""
    return solve_exact(problem, deadline)
