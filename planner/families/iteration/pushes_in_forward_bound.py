"""A lower bound on sharded plans for concave costs, with pushes that follow the first pulls.

Problem: as in `planner.families.iteration.bounds`, with transfers that cost the minimum of
several lines: bound the iteration M of every sharded plan. Method: a push is *right* if it ends in
the last t_0 of the iteration (t_0: the largest tail). With R bytes pushed right, M is at least
max(B, E(R)) + T(R): the end of the other pushes, and the least time of pulls and right pushes.
Derivation: docs/iteration.md, "Why the bound with pushes in the forward pass holds". Guarantee: no
sharded plan of the windows lasts less. Complexity: O(grid³) in NumPy for T, and O(grid · heads²)
for E. Source: own.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

import numpy as np

from planner.families.caramel.grid_bounds import (
    ROUNDING,
    ConcaveCost,
    Floats,
    grid_of,
    rounded_down,
)
from planner.families.caramel.windows import Windows
from planner.model.costs import Line

GRID = 128
"""Grid points: moments, and numbers of bytes pushed right."""

HEADS = 64
"""Distinct heads at most; further heads are merged into earlier ones."""


def right_pushes_bound(
    windows: Windows,
    pushed: Sequence[int],
    pulled: Sequence[int],
    lines: Sequence[Line],
    high: int,
    count: int = GRID,
) -> int:
    """Return the lower bound over all sharded plans (ns), at most `high`.

    A push, or a pull, costs at least the minimum of `lines`. The sizes in `windows` are not used.
    """
    cost = ConcaveCost(lines, sum(pushed) + sum(pulled))
    side = _RightSide(windows.tails, pushed, pulled, cost, count)
    pushes = _Pushes(windows, pushed, cost)
    best = float(high)
    # E(R) falls with R: compute it only for ranges of R that may matter.
    ranges = [(0, len(side.right) - 1)]
    while ranges:
        first, last = ranges.pop()
        end = max(windows.backward_ns, pushes.end(side.right[last]))
        value = end + float(side.lasting[first : last + 1].min())
        if value >= best:
            continue
        if first == last:
            best = value
            continue
        middle = (first + last) // 2
        ranges += [(middle + 1, last), (first, middle)]
    return min(high, rounded_down(best))


class _Pushes:
    """The earliest end of the pushes, E(R), if R bytes are pushed right."""

    def __init__(self, windows: Windows, pushed: Sequence[int], cost: ConcaveCost) -> None:
        self._cost = cost
        heads = sorted(set(windows.heads))
        kept = np.array(heads[:: -(-len(heads) // HEADS)])
        place = np.searchsorted(kept, windows.heads, side="right") - 1
        latest = np.array(windows.tails) == max(windows.tails)
        own = np.array(pushed, dtype=np.float64)
        self._heads = kept.astype(np.float64)
        self._stay = np.bincount(place, own * latest, len(kept))
        self._move = np.bincount(place, own * ~latest, len(kept))

    def end(self, right: float) -> float:
        """Return the earliest end of the pushes of all but `right` bytes, those ready last."""
        reached = np.minimum(self._move.cumsum(), max(self._move.sum() - right, 0))
        return earliest_end(self._heads, self._stay.cumsum() + reached, self._cost)


def earliest_end(heads: Floats, ready: Floats, cost: ConcaveCost) -> float:
    """Return the earliest end of transfers that send all bytes (ns).

    `ready`: cumulative bytes that are ready at each of the rising moments `heads`.
    """
    there = np.zeros(len(heads))  # most bytes sent by each moment
    earliest = [inf] * len(heads)  # when all bytes ready at each moment are sent
    waiting = [(float(head), -1, place) for place, head in enumerate(heads)]
    while True:
        now, kind, place = heappop(waiting)
        if kind < 0:
            sent = float(there[place])
        else:
            sent = float(ready[kind])
            if kind == len(heads) - 1 or sent >= ready[-1]:
                return now
        there[place + 1 :] = np.maximum(there[place + 1 :], sent)
        size = float(ready[place]) - sent
        if size <= 0:
            continue
        rooms = np.minimum(cost.room(heads[place + 1 :] - now), size)
        there[place + 1 :] = np.maximum(there[place + 1 :], sent + rooms)
        end = now + float(cost.of(np.array(size)))
        if end < earliest[place]:
            earliest[place] = end
            later = int(np.searchsorted(heads, end, side="right")) - 1
            heappush(waiting, (end, place, later))


class _RightSide:
    """The least time of pulls and right pushes, T(R).

    `right`: rising numbers of bytes pushed right, up to the most possible. `lasting`: the least
    time (ns) if more than the previous number and at most this number of bytes are pushed right.
    """

    def __init__(
        self,
        tails: Sequence[int],
        pushed: Sequence[int],
        pulled: Sequence[int],
        cost: ConcaveCost,
        count: int,
    ) -> None:
        self._cost, self._at = cost, grid_of(tails, count)
        self._top, later = float(self._at[-1]), np.append(self._at[1:], self._at[-1])
        known = np.array(tails)
        pushes, pulls = np.array(pushed, dtype=np.float64), np.array(pulled, dtype=np.float64)
        self._all = float(pulls.sum())
        self._can_push, self._can_pull = (
            np.array([own[known < end].sum() for end in later]) for own in (pushes, pulls)
        )
        self._ratio = float((pushes / pulls).max())  # pushed bytes to bytes pulled behind
        # All right pushes have pulls behind them, which start and end within the last `top` of
        # time.
        most = min(pushes[known < self._top].sum(), self._ratio * cost.room(np.array(self._top)))
        self.right = np.linspace(0, most, count + 1 if most else 1)
        self.lasting = np.full(len(self.right), inf)
        carried = np.full((len(self._at), len(self.right)), -1.0)  # -1: unreachable
        carried[0, 0] = 0
        for place in range(len(self._at) - 1):
            room = cost.room(later[place:] - self._at[place])
            self._grow(carried, place, room)
            self._end(place, carried[place])
        pulled_by = carried[-1]
        whole = np.where(pulled_by < 0, inf, self._top + cost.of(self._all - pulled_by))
        self.lasting = np.minimum(self.lasting, whole)

    def _grow(self, carried: Floats, place: int, room: Floats) -> None:
        """Add one pull, or one push, that starts in a step."""
        now, right = carried[place], self.right
        reachable = now >= 0
        now[reachable] = np.minimum(now[reachable] + room[0], self._can_pull[place])
        for number in range(len(right)):
            limit = min(self._can_push[place], self._ratio * now[number], right[-1])
            if right[number] < limit:
                sent = np.minimum(right[number] + room, limit)
                to = np.searchsorted(right, sent * (1 - ROUNDING))
                more = np.flatnonzero(to > number)
                to = to[more]
                carried[place + more, to] = np.maximum(carried[place + more, to], now[number])
        further = np.minimum(now + room[1:, None], self._can_pull[place])
        further = np.where(now < 0, -1, np.maximum(further, now))
        carried[place + 1 :] = np.maximum(carried[place + 1 :], further)

    def _end(self, place: int, now: Floats) -> None:
        """Record the time if one transfer, from a step on, ends inside the middle."""
        cost, right, begin = self._cost, self.right, float(self._at[place])
        left = self._all - now
        most = self._can_pull[place] - now
        for size in (np.minimum(cost.room(np.array(self._top - begin)), most), most):
            value = np.maximum(self._top, begin + cost.of(size)) + cost.of(left - size)
            self.lasting = np.minimum(self.lasting, np.where(now < 0, inf, value))
        for number in np.flatnonzero(now >= 0):
            limit = min(self._can_push[place], self._ratio * now[number])
            least = right[number:-1]
            value = np.maximum(self._top, begin + cost.of(least - right[number]))
            value = np.where(least < limit, value + cost.of(left[number]), inf)
            self.lasting[number + 1 :] = np.minimum(self.lasting[number + 1 :], value)
