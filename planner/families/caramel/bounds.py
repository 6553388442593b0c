"""Lower bounds on the iteration of every plan, for one op order and one cost.

Problem: bound the iteration, however gradients are grouped, cut and ordered. Method: the largest of
several bounds. The computation itself; Jackson's preemptive schedule at the best rate of any
transfer; the start-up-aware bound on widened windows (`planner.families.caramel.nested_windows`)
for each affine or concave cost below the given cost. `tighter_bound` adds two slower bounds:
`planner.families.caramel.concave_bound` (concave costs) and `planner.families.caramel.blocks` (no
widening). Guarantee: no plan for this op order and cost lasts less. Complexity: O(n log n), plus
O(states · log n · log M) per supporting line. Source: Jackson's rule as in Carlier, EJOR 11 (1982);
the start-up-aware bound is our own.
"""

from fractions import Fraction

from planner.families.caramel.jackson import preemptive_bound
from planner.families.caramel.nested_windows import Targets, widened
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, DepthCost, Line, TransferCost, supporting_lines

NEAR = 2000
"""A plan within 1/NEAR of its bound is good enough: slow bounds and searches are skipped."""


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
    from planner.families.caramel.blocks import block_bound  # imports NumPy
    from planner.families.caramel.concave_bound import concave_bound

    for lines in concave_bounds(cost, sum(windows.sizes)):
        if len(lines) > 1:
            low = max(low, concave_bound(windows, lines))
    if high <= low + low // NEAR:
        return low
    for line in supporting_lines(cost, sum(windows.sizes)):
        low = block_bound(windows, line, low, high)
    return low
