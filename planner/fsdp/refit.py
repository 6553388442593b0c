"""An old plan as one of a problem whose numbers have changed, in milliseconds.

Method: the old units, what they keep and recompute, on the old mesh. Gathers are issued as early as
memory allows now; if the units no longer fit, nothing is kept. Then the smallest changes of
`planner.fsdp.search`, for as many steps simulated as fit into milliseconds.

Guarantee: never worse than the old plan if that still fits; fits if anything with the old units and
nothing kept does. Complexity: O(EFFORT) steps. Source: own.
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
"""Steps simulated."""


def refit(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an old plan of the problem, whatever memory it needs, improved.

    Raises
    ------
    InvalidPlanError
        If its units do not fit into memory.
    """
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
