"""Warm start (`refit`): adapt an old plan to a problem with other numbers, in milliseconds.

Method: keep the old mesh and units; issue gathers as early as memory allows. If the units no longer
fit, keep no parameters. Then local search (`planner.fsdp.changes`) within `EFFORT` steps.
Guarantee: never worse than the old plan if that still fits; fits if the old units fit without kept
parameters.
Complexity: O(EFFORT) steps simulated. Source: own.
"""

from planner.deadline import Deadline
from planner.errors import InvalidPlanError
from planner.fsdp.checker import check
from planner.fsdp.plan import Plan
from planner.fsdp.problem import Problem
from planner.fsdp.search import improved
from planner.fsdp.shaping import shape_of
from planner.solving.methods import Outcome

__all__ = ["refit"]

EFFORT = 400
"""Steps simulated, which takes milliseconds."""


def refit(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an old plan improved; raise `InvalidPlanError` if its units do not fit into memory."""
    shape = shape_of(plan)
    bare = shape._replace(keep=(False,) * len(plan.units), buffers=1)
    try:
        check(problem, plan)
        old = [plan]
    except InvalidPlanError:
        old = []
    made = improved(problem, (shape, bare), old, EFFORT, deadline)
    if made is None:
        raise InvalidPlanError("units", "they do not fit into memory_bytes any more")
    return Outcome(made, timed_out=deadline.passed)
