"""Caramel's network model: a line through two micro-benchmarks, and the batching threshold.

Problem: find the smallest size x with f(2x) / (2·f(x)) > θ, for θ = 0.8: doubling it costs more
than θ of twice its time, so batching gains little.
Method: for an affine cost α + β·x, x > α(2θ - 1) / (2β(1 - θ)), which is 1.5·α/β for θ = 0.8. A
measured cost is searched piece by piece: if x and 2x each stay on one piece, the condition is
linear.
Guarantee: exact, on the unrounded cost.
Complexity: O(pieces²) for a measured cost, O(1) for an affine one.
Source: Caramel §4.2.
"""

from fractions import Fraction
from functools import lru_cache

from planner.model.costs import AffineCost, DepthCost, LinearPiece, TransferCost
from planner.model.errors import InvalidInputError

DOUBLING = Fraction(4, 5)
"""θ."""


@lru_cache(maxsize=256)  # slow for a table: all pairs of pieces
def batching_threshold(cost: TransferCost, doubling: Fraction = DOUBLING) -> int | None:
    """Return the smallest size of at least a byte that uses the network well.

    Parameters
    ----------
    cost : TransferCost
        The network's cost; of a cost by depth, that of depth 1.
    doubling : Fraction
        θ, at least 1/2 and below 1.

    Returns
    -------
    int or None
        The threshold in bytes; None if no size reaches it.
    """
    if not Fraction(1, 2) <= doubling < 1:
        raise InvalidInputError("doubling", f"expected 1/2 <= θ < 1, got {doubling}")
    if isinstance(cost, DepthCost):
        cost = cost.at_depth(1)
    if isinstance(cost, AffineCost):
        if not cost.ns_per_byte:
            return None
        well = cost.startup_ns * (2 * doubling - 1) / (2 * cost.ns_per_byte * (1 - doubling))
        return well.__floor__() + 1
    pieces = cost.pieces()
    thresholds = [
        size
        for single in pieces
        for doubled in pieces
        if (size := _smallest(single, doubled, doubling)) is not None
    ]
    return min(thresholds, default=None)


def _smallest(single: LinearPiece, doubled: LinearPiece, doubling: Fraction) -> int | None:
    """Return the smallest threshold x on `single` with 2x on `doubled`, or None."""
    low = max(1, single.start, -(-doubled.start // 2))
    stops = [stop for stop in (single.stop, doubled.stop and doubled.stop // 2) if stop is not None]
    high = min(stops, default=None)
    if high is not None and high < low:
        return None

    def surplus(size: int) -> Fraction:
        return doubled.time(2 * size) - 2 * doubling * single.time(size)

    if surplus(low) > 0:
        return low
    slope = 2 * doubled.slope - 2 * doubling * single.slope
    if slope <= 0:
        return None
    size = low + (-surplus(low) / slope).__floor__() + 1
    return size if high is None or size <= high else None
