"""Warm start: the closed form solves the changed problem; the old plan needs the same stages."""

from dataclasses import replace

from planner.families.drizzle.closed_form import solve_exact
from planner.families.drizzle.problem import Plan, Problem, triggers_of
from planner.model.errors import InvalidPlanError
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome


def adapt(problem: Problem, plan: Plan) -> Plan:
    """Return an old plan with the tasks of the problem's stages.

    InvalidPlanError if the plan has other stages.
    """
    stages = triggers_of(tuple(problem.stages))
    known = {row.name: (set(row.after), set(row.after_previous)) for row in stages}
    old = {row.name: (set(row.after), set(row.after_previous)) for row in plan.stages}
    if old != known:
        raise InvalidPlanError("stages", f"expected {sorted(known)} with what each waits for")
    return replace(plan, stages=stages)


def refit(problem: Problem, _: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return the optimal plan; the closed form needs no old plan."""
    return solve_exact(problem, deadline)
