"""A lower bound on the makespan and on Eq. 4 that knows no solver.

Relaxation: layers 0 … i cannot have arrived before the cheapest way of sending their bytes, in any
number of transfers, and once layer i is there, layers i … L-1 still have to be computed. Pushing is
the same read backwards. For an affine cost the cheapest way is one transfer; for a table it is at
least the bytes at the table's best rate, and at least one smallest transfer.

For Eq. 4: all bytes sent in the cheapest way, then the last layer's computation.

Complexity: O(L). Source: own; the one-machine bound with tails of scheduling theory, applied to
batches.
"""

from fractions import Fraction
from math import ceil

from planner.costs import TableCost
from planner.ibatch.problem import Problem

__all__ = ["relaxation"]


def relaxation(problem: Problem) -> int:
    """Return a bound on the objective of every plan, in nanoseconds."""
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
    """Return for each prefix of layers a bound on when it can have been sent."""
    cost, sizes = problem.cost, problem.size_prefix
    assert cost is not None
    assert sizes is not None
    if not isinstance(cost, TableCost):  # two transfers take no less than one of all their bytes
        return [cost.cost_ns(size) for size in sizes]
    points = cost.points
    cheapest = min(time for _, time in points)
    last = Fraction(points[-1][1] - points[-2][1], points[-1][0] - points[-2][0])
    # On each segment time per byte is monotone, so its minimum lies at a point, or at infinity.
    rate = min([last, *(Fraction(time, size) for size, time in points if size > 0)])
    return [max(cheapest, ceil(rate * size)) for size in sizes]
