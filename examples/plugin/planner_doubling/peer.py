"""A peer of whole iterations: all gradients in one all-reduce, in the order that workers keep."""

from planner import iteration
from planner.caramel import Part
from planner.families.iteration.plan import Way
from planner.solving.deadline import Deadline

__all__ = ["one_bucket"]


def one_bucket(problem: iteration.Problem, way: Way, _: Deadline) -> iteration.Plan:
    """Return the plan for one algorithm; planner asks for each there is."""
    parts = tuple(Part(index, 0, size) for index, size in enumerate(problem.pushed))
    order = problem.base.order
    transfers = (iteration.Transfer(parts),)
    return iteration.Plan(way.algorithm, transfers, (order.backward,), order.forward)
