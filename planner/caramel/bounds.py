"""Lower bounds on the iteration of every plan, for one op order and one cost.

Problem: bound the iteration, however gradients are grouped, cut and ordered.
Method: the largest of several bounds. The computation itself; Jackson's preemptive schedule at the
best rate of any transfer; the start-up-aware bound on widened windows (`planner.caramel.nested`)
for each affine or concave cost below the given cost. `tighter_bound` adds two slower bounds:
`planner.caramel.inwards` (concave costs) and `planner.caramel.blocks` (no widening).
Guarantee: no plan for this op order and cost lasts less.
Complexity: O(n log n), plus O(states · log n · log M) per supporting line.
Source: Jackson's rule as in Carlier, EJOR 11 (1982); the start-up-aware bound is our own.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from planner.caramel.jackson import preemptive_bound
from planner.caramel.nested import Line, Targets, widened
from planner.caramel.windows import Windows
from planner.costs import AffineCost, DepthCost, TransferCost

__all__ = ["NEAR", "concave_bounds", "lower_bound", "supporting_lines", "tighter_bound"]

NEAR = 2000
"""A plan within 1/NEAR of its bound is good enough: slow bounds and searches are skipped."""


@lru_cache(maxsize=256)  # all plans for a network share these lines
def supporting_lines(cost: TransferCost, largest: int) -> tuple[Line, ...]:
    """Return affine costs (α, β) that no transfer of 1 … `largest` bytes undercuts.

    They are the edges of the lower convex hull of the cost with non-negative start-up and slope,
    and the horizontal line through the cheapest size.
    """
    corners: dict[int, Fraction] = {}
    for piece in cost.pieces():
        stop = largest if piece.stop is None else min(piece.stop, largest)
        for size in (max(piece.start, 1), stop):
            if piece.start <= size <= stop:
                corners[size] = min(piece.time(size), corners.get(size, piece.time(size)))
    hull: list[tuple[int, Fraction]] = []
    for x, y in sorted(corners.items()):
        while len(hull) > 1 and _turns_right(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    lines = [(min(corners.values()), Fraction(0))]
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = (y1 - y0) / (x1 - x0)
        if slope >= 0 and y0 - slope * x0 >= 0:
            lines.append((y0 - slope * x0, slope))
    return tuple(lines)


def concave_bounds(cost: TransferCost, largest: int) -> list[tuple[Line, ...]]:
    """Return concave costs that no transfer undercuts, each the minimum of some lines.

    Every supporting line is such a cost. The minimum over all depths is another one if all are
    affine.
    """
    bounds: list[tuple[Line, ...]] = [(line,) for line in supporting_lines(cost, largest)]
    if isinstance(cost, DepthCost) and len(cost.by_depth) > 1:
        affine = [
            depth_cost for _, depth_cost in cost.by_depth if isinstance(depth_cost, AffineCost)
        ]
        if len(affine) == len(cost.by_depth):
            bounds.append(tuple((Fraction(line.startup_ns), line.ns_per_byte) for line in affine))
    return bounds


def _turns_right(
    left: tuple[int, Fraction], middle: tuple[int, Fraction], right: tuple[int, Fraction]
) -> bool:
    """Return whether `middle` lies on or above the line from `left` to `right`."""
    (x0, y0), (x1, y1), (x2, y2) = left, middle, right
    return (y1 - y0) * (x2 - x0) >= (y2 - y0) * (x1 - x0)


def lower_bound(windows: Windows, cost: TransferCost) -> int:
    """Return a lower bound on the iteration of every plan (ns)."""
    best = preemptive_bound(windows, cost)
    nests = widened(windows)
    for lines in concave_bounds(cost, sum(windows.sizes)):
        for nested in nests:
            best, _ = Targets(nested, lines).least(best)
    return best


def tighter_bound(windows: Windows, cost: TransferCost, low: int, high: int) -> int:
    """Return a lower bound of at least `low` (ns); a plan of value `high` is known.

    Slower than `lower_bound`, so it returns `low` if `high` is near it.
    """
    if high <= low + low // NEAR:
        return low
    from planner.caramel.blocks import block_bound  # imports NumPy
    from planner.caramel.inwards import concave_bound

    for lines in concave_bounds(cost, sum(windows.sizes)):
        if len(lines) > 1:
            low = max(low, concave_bound(windows, lines))
    if high <= low + low // NEAR:
        return low
    for line in supporting_lines(cost, sum(windows.sizes)):
        low = block_bound(windows, line, low, high)
    return low
