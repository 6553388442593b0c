"""A lower bound for any cost, monotone or not, by dynamic programming on a grid of moments.

Problem: bound the iteration of every plan of nested windows, however bytes are grouped and cut.
Method: from both ends inwards, the most bytes that transfers carry by a moment on the left and a
moment on the right; transfers are taken in the order of the windows they reach. One transfer on
each side may reach into the middle; bytes left over are carried there at `GridCost.least`.
Derivation: docs/caramel.md, "Why the bound for any cost holds". Guarantee: no plan lasts less.
Complexity: O(grid³) in NumPy. Source: own.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from planner.families.caramel.bounds import Nested, outer_nesting
from planner.families.caramel.grid_bounds import grid_of, rounded_down
from planner.families.caramel.grid_costs import Floats, GridCost
from planner.families.caramel.windows import Windows

COUNTS = (96, 320)
"""Grid points on each side, one after the other until a plan is near the bound."""

ENOUGH = 200
"""A bound within 1/ENOUGH of a plan is not raised by a finer grid."""

SIZES = 128
"""Number of sizes that are tried for a transfer that crosses from one side to the other."""

FIRST, FINEST = 16, 512
"""Steps of the first grid, and of the finest, of the time by which a transfer of the left side
overruns that side."""


def table_bound(windows: Windows, cost: GridCost, high: int, counts: Sequence[int] = COUNTS) -> int:
    """Return the lower bound over all plans (ns), at most `high`, the value of a plan."""
    low = 0
    for count in counts:
        for nested in outer_nesting(windows):
            value = _Inwards(nested, cost, count).least(high)
            low = max(low, min(high, rounded_down(value)))
        if high <= low + low // ENOUGH:
            break
    return low


class _Side:
    """Moments of one side, the most bytes between two of them, and the bytes ready by each."""

    def __init__(
        self, moments: Sequence[int], sizes: Sequence[int], cost: GridCost, count: int
    ) -> None:
        self.at = grid_of(moments, count)
        self.top = float(self.at[-1])
        later = np.append(self.at[1:], self.top)
        self.rooms = cost.room(np.maximum(later[None, :] - self.at[:, None], 0))
        known, own = np.array(moments, dtype=np.float64), np.array(sizes, dtype=np.float64)
        order = np.argsort(known, kind="stable")
        reached = np.append(0, own[order].cumsum())
        self.caps = reached[np.searchsorted(known[order], later, side="left")]
        self.caps[-1] = reached[-1]


class _Inwards:
    """The most bytes carried by each pair of moments, for one set of nested windows."""

    def __init__(self, nested: Nested, cost: GridCost, count: int) -> None:
        sizes = [sum(loads) for loads in nested.loads]
        self.cost, self.all = cost, float(sum(sizes))
        self.left = _Side(nested.heads, sizes, cost, count)
        self.right = _Side(nested.tails, sizes, cost, count)
        self.most = np.zeros((len(self.left.at), len(self.right.at)))
        # From a pair of moments only the side that reaches less moves: it takes the outer bytes.
        events = [(cap, 0, row) for row, cap in enumerate(self.left.caps[:-1])]
        events += [(cap, 1, column) for column, cap in enumerate(self.right.caps[:-1])]
        for cap, side, place in sorted(events):
            if side == 0:
                first = int(np.searchsorted(self.right.caps, cap))
                _move(self.most[:, first:], self.left.rooms[place], float(cap), place)
            else:
                first = int(np.searchsorted(self.left.caps, cap))
                _move(self.most[first:].T, self.right.rooms[place], float(cap), place)
        np.maximum.accumulate(self.most, axis=0, out=self.most)
        np.maximum.accumulate(self.most, axis=1, out=self.most)
        self._sizes = np.linspace(0, float(self.right.caps[:-1].max(initial=0)), SIZES + 1)
        self._times = cost.of(np.floor(self._sizes[:-1]) + 1)

    def least(self, high: float) -> float:
        """Return the least iteration, or `high` if that is less."""
        longest = float(self.cost.of(np.array(self.all)))
        steps = np.linspace(0, longest, FIRST + 1)
        waiting = [(self._value(a, b), a, b) for a, b in pairwise(steps.tolist())]
        heapify(waiting)
        while waiting:
            value, first, last = heappop(waiting)
            if value >= high or last - first <= longest / FINEST:
                return min(value, high)
            middle = (first + last) / 2
            heappush(waiting, (self._value(first, middle), first, middle))
            heappush(waiting, (self._value(middle, last), middle, last))
        return high

    def _value(self, over: float, most_over: float) -> float:
        """Return the least iteration if the left side is overrun by `over` to `most_over` (ns)."""
        left, right, cost = self.left, self.right, self.cost
        carried = self.most[-1]
        if len(left.at) > 1:
            rooms = cost.room(left.top + most_over - left.at[:-1])[:, None]
            further = np.minimum(self.most[:-1] + rooms, left.caps[:-1, None])
            carried = np.maximum(carried, further.max(axis=0))
        begin = left.top + over
        value = begin + right.top + float(cost.least(self.all - carried[-1]))
        if len(right.at) == 1:
            return value
        # One more transfer on the right, which reaches into the middle.
        before, cap = carried[:-1, None], right.caps[:-1, None]
        least, most = self._sizes[:-1], np.minimum(self._sizes[1:], cap - before)
        ended = np.maximum(right.at[:-1, None] + self._times, right.top)
        rest = cost.least(np.maximum(self.all - before - most, 0))
        ends = np.where(least < cap - before, ended + rest, np.inf)
        return min(value, begin + float(ends.min()))


def _move(most: Floats, rooms: Floats, cap: float, place: int) -> None:
    """Raise the bytes at all later moments by one transfer that starts at one moment."""
    if place:
        np.maximum(most[place], most[place - 1], out=most[place])
    start = most[place]
    np.maximum(start, np.minimum(start + rooms[place], cap), out=start)
    further = start + rooms[place + 1 :, None]
    np.minimum(further, cap, out=further)
    np.maximum(most[place + 1 :], further, out=most[place + 1 :])
