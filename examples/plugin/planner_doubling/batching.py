"""A batching heuristic: each batch has twice as many layers as the one before.

The first batch is small, so that computation begins soon; later ones are large, so that few
start-ups are paid. Complexity: O(L).
"""

from planner import ibatch
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

__all__ = ["doubling"]


def doubling(problem: ibatch.Problem, _: Deadline) -> Outcome[ibatch.Plan]:
    """Return batches of 1, 2, 4, … layers, smaller ones where a batch may not hold so much."""
    boundaries, count = [0], 1
    while boundaries[-1] < problem.layers:
        start = boundaries[-1]
        boundaries.append(max(start + 1, min(start + count, problem.reach(start))))
        count *= 2
    return Outcome(problem.plan(boundaries))
