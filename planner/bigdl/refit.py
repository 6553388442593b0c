"""An old plan as one of a problem whose numbers have changed: slices of what there is now.

Guarantee: the same way of synchronising; a driver's levels stay. Complexity: O(1). Source: own.
"""

from dataclasses import replace

from planner.bigdl.plan import Exchange, Plan
from planner.bigdl.problem import Problem

__all__ = ["adapt"]


def adapt(problem: Problem, plan: Plan) -> Plan:
    """Return an old plan with the problem's elements and nodes."""
    if isinstance(plan, Exchange):
        return replace(plan, elements=problem.elements, nodes=problem.nodes)
    return plan
