"""Any cost of transfers as arrays: bounds on the cost of one transfer and of several.

Problem: bounds on grids need the least time of a number of bytes or more, the most bytes within a
time, and the least time of any number of transfers. Method: a table is replaced by the largest cost
below it that never falls; the minimum of several costs counts. `least` is the subadditive closure
on a grid. Guarantee: costs are never above, rooms never below those of transfers; floating point
adds a relative error below 1e-12 an operation. Complexity: O(points) per value; O(CELLS²) for
`least`. Source: own.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.model.costs import AffineCost, DepthCost, Line, TransferCost

Floats = NDArray[np.float64]

OPERATION_ERROR = 1e-12
"""Relative margin above the error of one operation."""

CELLS = 1024
"""Cells of the grid of bytes on which several transfers are counted."""


class GridCost:
    """A lower bound on the cost of transfers, for arrays; `total`: most bytes of a transfer."""

    def __init__(self, costs: Sequence[tuple[Floats, Floats]], total: int) -> None:
        self.total = total
        self._costs = costs
        self._concave = all(len(sizes) == 2 for sizes, _ in costs)  # each is a line

    @classmethod
    def of_cost(cls, cost: TransferCost, total: int) -> "GridCost":
        """Return the bound of a cost."""
        options = [each for _, each in cost.by_depth] if isinstance(cost, DepthCost) else [cost]
        costs = []
        for option in options:
            known = {0, total}
            if not isinstance(option, AffineCost):
                known |= {size for size, _ in option.points if size < total}
            sizes = np.array(sorted(known), dtype=np.int64)
            unrounded = [_unrounded(option, int(size)) for size in sizes]
            costs.append(_rising(sizes.astype(np.float64), np.array(unrounded)))
        return cls(costs, total)

    @classmethod
    def of_lines(cls, lines: Sequence[Line], total: int) -> "GridCost":
        """Return the minimum of several lines."""
        sizes = np.array([0.0, max(total, 1)])
        return cls([(sizes, float(start) + float(rate) * sizes) for start, rate in lines], total)

    def of(self, sizes: Floats) -> Floats:
        """Return the least cost of one transfer of at least some bytes (ns)."""
        costs = [np.interp(sizes, known, times) for known, times in self._costs]
        return np.asarray(np.min(costs, axis=0))

    def room(self, times: Floats) -> Floats:
        """Return the most bytes that one transfer carries within each of some times (ns)."""
        rooms = [_most(times, *cost) for cost in self._costs]
        return np.asarray(np.max(rooms, axis=0))

    @cached_property
    def rate(self) -> float:
        """Return a rate below the least time per byte of any transfer (ns)."""
        corners = np.concatenate([known[known >= 1] for known, _ in self._costs])
        sizes = np.append(corners, 1.0)
        return float((self.of(sizes) / sizes).min()) * (1 - OPERATION_ERROR)

    def overheads(self, edges: Floats) -> Floats:
        """Return lower bounds on the time of transfers beyond that of their bytes at `rate`.

        There is one bound for each pair of cells of bytes in which a transfer starts and ends.
        `edges`: the first number of bytes of each cell; the last cell has no other. A transfer may
        start and end anywhere in the two cells.
        """
        begin, end = np.triu_indices(len(edges), 1)
        most = last_bytes(edges)
        least = np.full((len(edges), len(edges)), np.inf)
        first = np.maximum(edges[end] - most[begin], 1)
        least[begin, end] = self.overhead(first, np.maximum(most[end] - edges[begin], first))
        return least

    def overhead(self, first: Floats, last: Floats) -> Floats:
        """Return the least time beyond `rate` of one transfer of `first` … `last` bytes."""
        least = np.minimum(*(self.of(size) - self.rate * size for size in (first, last)))
        for known, _ in self._costs:
            corners = known[known >= 1]
            over = self.of(corners) - self.rate * corners
            least = np.minimum(least, _least_inside(corners, over, first, last))
        return np.maximum(least, 0)

    def least(self, sizes: Floats) -> Floats:
        """Return the least cost of any number of transfers that carry some bytes (ns)."""
        if self._concave:
            return np.where(sizes > 0, self.of(sizes), 0)
        step, overheads = self._several
        place = np.clip(sizes // step, 0, len(overheads) - 1).astype(np.int64)
        several = overheads[place] + self.rate * np.maximum(sizes, 0)
        least = np.maximum(several, np.minimum(self.of(sizes), 2 * self._startup))
        return np.where(sizes > 0, least, 0)

    @cached_property
    def _startup(self) -> float:
        """The least cost of a transfer."""
        return float(self.of(np.array(1.0)))

    def closure(self, first: Floats, last: Floats) -> Floats:
        """Return the least time beyond `rate` of transfers that carry `first` … `last` bytes."""
        step, overheads = self._several
        at = np.arange(len(overheads), dtype=np.float64) * step
        several = _least_inside(at, overheads, np.floor(first / step) * step, last)
        two = 2 * self._startup - self.rate * last
        return np.minimum(self.overhead(first, last), np.maximum(several, two))

    @cached_property
    def _several(self) -> tuple[int, Floats]:
        """The bytes of a cell, and the least time beyond `rate` of transfers up to each cell."""
        step = -(-self.total // CELLS)
        edges = np.arange(0, self.total + 1, step, dtype=np.float64)
        return step, earliest(np.zeros(len(edges)), edges, self)


def last_bytes(edges: Floats) -> Floats:
    """Return the largest number of bytes of each cell."""
    return np.append(edges[1:] - 1, edges[-1])


def earliest(moments: Floats, edges: Floats, cost: GridCost) -> Floats:
    """Return the earliest ends of transfers up to each cell of bytes, less `rate` for their bytes.

    A transfer waits for the moment of the last cell that it fills.
    """
    ends = np.zeros(len(moments))
    overheads = cost.overheads(edges)
    waits = moments[None, :] - cost.rate * last_bytes(edges)[:, None]
    for place in range(1, len(moments)):
        begin = np.maximum(ends[:place], waits[:place, place])
        ends[place] = (begin + overheads[:place, place]).min()
    return ends


def places(
    moments: Sequence[int], sizes: Sequence[int], count: int
) -> tuple[list[int], list[list[int]]]:
    """Return the order of parameters by their moments, and places at which each may be cut.

    About half of `count` places share the bytes, half the time between the moments. The last place
    of a parameter is its end.
    """
    order = np.argsort(moments, kind="stable")
    known, own = np.array(moments)[order], np.array(sizes, dtype=np.int64)[order]
    share = own / max(own.sum(), 1) + np.diff(known, prepend=0) / max(known[-1], 1)
    numbers = np.clip(np.ceil(share * count / 2).astype(np.int64), 1, np.maximum(own, 1))
    cuts = [
        [size * part // number for part in range(1, number + 1)]
        for size, number in zip(own.tolist(), numbers.tolist(), strict=True)
    ]
    return order.tolist(), cuts


def _least_inside(sizes: Floats, values: Floats, first: Floats, last: Floats) -> Floats:
    """Return the least value of the sizes from `first` to `last`; infinity if there is none."""
    begin = np.searchsorted(sizes, first, side="left")
    end = np.searchsorted(sizes, last, side="right")
    levels = [values]  # the least of 1, 2, 4 … values from each place on
    while 2 ** len(levels) <= len(values):
        half = 2 ** (len(levels) - 1)
        levels.append(np.minimum(levels[-1][:-half], levels[-1][half:]))
    least = np.full(first.shape, np.inf)
    for level, known in enumerate(levels):
        inside = np.flatnonzero(
            (end - begin >= 2**level).ravel() & (end - begin < 2 ** (level + 1)).ravel()
        )
        starts, ends = begin.ravel()[inside], end.ravel()[inside] - 2**level
        least.ravel()[inside] = np.minimum(known[starts], known[ends])
    return least


def _unrounded(cost: TransferCost, size: int) -> float:
    """Return the cost before it is rounded up to whole ns."""
    for piece in cost.pieces():
        if piece.stop is None or size <= piece.stop:
            return float(piece.time(size))
    raise AssertionError("the last piece has no end")


def _rising(sizes: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Return the largest function below a piecewise linear one that never falls."""
    least = np.minimum.accumulate(times[::-1])[::-1]
    points = [(sizes[-1], least[-1])]
    for place in range(len(sizes) - 2, -1, -1):
        x0, y0, x1, y1 = sizes[place], times[place], sizes[place + 1], times[place + 1]
        after = least[place + 1]
        if y0 < after < y1:  # flat once it reaches what comes after
            points.append((x0 + (x1 - x0) * (after - y0) / (y1 - y0), after))
        points.append((x0, least[place]))
    known, values = zip(*points[::-1], strict=True)
    return np.array(known), np.array(values)


def _most(times: Floats, sizes: Floats, costs: Floats) -> Floats:
    """Return the largest size whose cost is at most each time; 0 if there is none."""
    place = np.searchsorted(costs, times, side="right") - 1
    inside = np.clip(place, 0, len(sizes) - 2)
    rise = costs[inside + 1] - costs[inside]
    share = (times - costs[inside]) / np.where(rise > 0, rise, 1)
    between = sizes[inside] + share * (sizes[inside + 1] - sizes[inside])
    capped = np.where(place >= len(sizes) - 1, sizes[-1], between)
    return np.asarray(np.where(place < 0, 0, capped))
