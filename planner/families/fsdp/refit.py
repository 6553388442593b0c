"""Warm start (`refit`): adapt an old plan to a problem with other numbers, in milliseconds.

Method: keep the old mesh and units; issue gathers as early as memory allows. If the units no longer
fit, keep no parameters. Then local search (`planner.families.fsdp.neighbourhood`) within `EFFORT`
steps. Guarantee: never worse than the old plan if that still fits; fits if the old units fit
without kept parameters. Complexity: O(EFFORT) steps simulated. Source: own.
"""

from planner.families.fsdp.checker import check
from planner.families.fsdp.prefetch import shape_of
from planner.families.fsdp.problem import Plan, Problem
from planner.families.fsdp.search import improved
from planner.model.errors import InvalidPlanError
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

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
