"""Combinatorial lower bound on the makespan and on Eq. 4: the one-machine bound with tails.

Bound: layers 0 … i arrive no earlier than the cheapest way to send their bytes in any number of
transfers; then layers i … L-1 remain to be computed. Pushes: time reversal. For Eq. 4: all bytes
sent in the cheapest way, then the last layer's computation. An affine cost is cheapest in one
transfer. A table costs at least all bytes at its best rate, and at least its cheapest transfer.
Complexity: O(L). Source: own; the bound of scheduling theory, applied to batches.
"""

from fractions import Fraction
from math import ceil

from planner.costs import TableCost
from planner.ibatch.problem import Problem

__all__ = ["relaxation"]


def relaxation(problem: Problem) -> int:
    """Return a lower bound on the objective (ns)."""
    count, computed = problem.layers, problem.compute_prefix
    total = computed[count]
    if problem.transfer_prefix is not None:
        arrival = [problem.transfer_startup_ns + time for time in problem.transfer_prefix]
    else:
        arrival = _cheapest_arrivals(problem)
    if problem.objective == "eq4":
        return arrival[count] + total - computed[count - 1]
    return max(arrival[i + 1] + total - computed[i] for i in range(count))


def _cheapest_arrivals(problem: Problem) -> list[int]:
    """Return a lower bound on the arrival time of each prefix of layers (ns)."""
    cost, sizes = problem.cost, problem.size_prefix
    assert cost is not None
    assert sizes is not None
    if not isinstance(cost, TableCost):  # subadditive: splitting a transfer never saves time
        return [cost.cost_ns(size) for size in sizes]
    points = cost.points
    cheapest = min(time for _, time in points)
    last = Fraction(points[-1][1] - points[-2][1], points[-1][0] - points[-2][0])
    # On each segment time per byte is monotone, so its minimum lies at a point, or at infinity.
    rate = min([last, *(Fraction(time, size) for size, time in points if size > 0)])
    return [max(cheapest, ceil(rate * size)) for size in sizes]
