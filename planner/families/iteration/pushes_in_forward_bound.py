"""A lower bound on sharded plans for any cost, with pushes that follow the first pulls.

Problem: as in `planner.families.iteration.bounds`, for costs that need be neither affine nor
monotone: bound the iteration M of every sharded plan. Method: a push is *right* if it ends in the
last t_0 of the iteration (t_0: the largest tail). With R bytes pushed right, M is at least
max(B, E(R)) + T(R): the end of the other pushes, and the least time of pulls and right pushes.
Both by dynamic programming over cells of bytes. Derivation: docs/iteration.md, "Why the bound with
pushes in the forward pass holds". Guarantee: no sharded plan of the windows lasts less; equal to
the best E and T if cells have one byte. Complexity: O(cells²) for E, O(cells² · right cells) for T,
in NumPy. Source: own.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from planner.families.caramel.grid_bounds import rounded_down
from planner.families.caramel.grid_costs import (
    OPERATION_ERROR,
    Floats,
    GridCost,
    earliest,
    last_bytes,
    places,
)
from planner.families.caramel.windows import Windows

SIDE = 768
"""Cells of pushed bytes, and of pulled bytes if all pushes come first."""

CELLS = 512
"""Cells of pulled bytes if some pushes come later."""

LATE = (0, 0.25, 0.9)
"""Late bytes are those with tails of at least these shares of the largest tail."""

ENOUGH = 200
"""A bound within 1/ENOUGH of a plan is good enough."""

PARTS = 8
"""Parts of an interval of R in which E(R) is computed."""

RIGHT = (24, 96)
"""Cells of bytes pushed right: the finer ones for the range that the coarser ones leave."""


def right_pushes_bound(
    windows: Windows,
    pushed: Sequence[int],
    pulled: Sequence[int],
    costs: tuple[GridCost, GridCost],
    high: int,
    cells: int = CELLS,
) -> int:
    """Return the lower bound over all sharded plans (ns), at most `high`.

    `costs`: of pushes and pulls. The sizes in `windows` are not used.
    """
    side = max(SIDE * cells // CELLS, 1)
    pulls = _Pulls(windows.tails, pushed, pulled, costs, cells)
    pulls_alone = _end(windows.tails, pulled, costs[1], side)
    best, top, apart = 0.0, max(windows.tails), float(high)
    for share in LATE:
        pushes = _Pushes(windows, pushed, costs[0], side, int(top * share))
        none = max(windows.backward_ns, pushes.end(0)) + pulls_alone  # no late byte pushed right
        apart = min(apart, none) if not share else apart
        value = min(apart, none)
        if pushes.movable:
            value = _with_right_pushes(pulls, pushes, windows.backward_ns, pulls_alone, apart)
        best = max(best, value)
        if high <= best + best / ENOUGH or not pushes.movable:
            break
    return min(high, rounded_down(best))


def _with_right_pushes(
    pulls: "_Pulls", pushes: "_Pushes", backward: int, pulls_alone: float, high: float
) -> float:
    """Return the least of max(B, E(R)) + T(R) over all R, or `high` if that is less."""
    most, found, begin = pushes.movable, high, float(backward)
    for count in RIGHT:
        right, lasting = pulls.lasting(most, count, pushes.from_tail)
        found, most = high, 0
        for place, least in enumerate(lasting.tolist()):
            # More precisely than T(R), E(R) + T(R) is bounded by parts of the interval of R.
            after = right[max(place - 1, 0)]
            value = high
            for part in range(PARTS):
                low = after + (right[place] - after) * part // PARTS
                end = pushes.end(after + (right[place] - after) * (part + 1) // PARTS)
                time = max(least + pulls.push_rate * (low + (place > 0)), pulls_alone)
                value = min(value, max(begin, end) + time)
            found = min(found, value)
            most = right[place] if value < high else most
        if not most:
            break
    return found


class _Bytes(NamedTuple):
    """Bytes of one side in cells, by rising moments."""

    edges: Floats  # the first byte of each cell; the last cell is the end
    moments: Floats  # of the last byte before each cell


def _cells(moments: Sequence[int], sizes: Sequence[int], count: int) -> _Bytes:
    """Return about `count` cells, which share the bytes and the time between moments."""
    order, cuts = places(moments, sizes, count)
    edges, at = [0], [0]
    for j, inside in zip(order, cuts, strict=True):
        begin = edges[-1]
        edges += [begin + cut for cut in inside if cut]
        at += [moments[j]] * (len(edges) - len(at))
    # Every parameter has a place of its own; of very many parameters only some places are used.
    every = -(-len(edges) // (2 * count))
    used = [0, *range(len(edges) - 1, 0, -every)[::-1]]
    first, moment = (np.array(known, dtype=np.float64)[used] for known in (edges, at))
    return _Bytes(first, moment)


def _end(moments: Sequence[int], sizes: Sequence[int], cost: GridCost, count: int) -> float:
    """Return the earliest end of transfers of all bytes, each of which waits for its moment."""
    if not any(sizes):
        return 0.0
    edges, known = _cells(moments, sizes, count)
    return float(earliest(known, edges, cost)[-1]) + cost.rate * float(edges[-1])


class _Pushes:
    """The earliest end of the pushes, E(R), if R late bytes are pushed right, and all earlier ones.

    Bytes are late if their tail is at least `from_tail`. Those of the largest tail that are ready
    last, the *final* ones, are never pushed right.
    """

    def __init__(
        self,
        windows: Windows,
        pushed: Sequence[int],
        cost: GridCost,
        count: int,
        from_tail: int,
    ) -> None:
        self._cost, self.from_tail = cost, from_tail
        top, self._ready = max(windows.tails), max(windows.heads)
        rest, self._final, self.movable = [], 0, 0
        for j, (head, tail) in enumerate(zip(windows.heads, windows.tails, strict=True)):
            if tail == top and head == self._ready:
                self._final += pushed[j]
            elif tail >= from_tail:
                rest.append(j)
            if from_tail <= tail < top:
                self.movable += pushed[j]
        sizes, heads = [pushed[j] for j in rest], [windows.heads[j] for j in rest]
        self._all = sum(sizes)
        if self._all:
            self._edges, moments = _cells(heads, sizes, count)
            self._ends = earliest(moments, self._edges, cost)
        else:
            self._edges, self._ends = np.zeros(1), np.zeros(1)

    def end(self, right: int) -> float:
        """Return the earliest end of the pushes of all but `right` bytes, those ready last."""
        kept, rate = self._all - min(right, self.movable), self._cost.rate
        count = int(np.searchsorted(self._edges, kept, side="right"))
        if not self._final:
            return float(self._ends[count - 1]) + rate * kept
        first = self._edges[:count]
        last = np.minimum(last_bytes(self._edges)[:count], kept)
        left = self._cost.closure(self._final + kept - last, self._final + kept - first)
        begin = np.maximum(self._ends[:count], self._ready - rate * last)
        return float((begin + left).min()) + rate * (kept + self._final)


class _Pulls:
    """The least time of pulls and right pushes, T(R)."""

    def __init__(
        self,
        tails: Sequence[int],
        pushed: Sequence[int],
        pulled: Sequence[int],
        costs: tuple[GridCost, GridCost],
        count: int,
    ) -> None:
        self._push, self._pull = costs
        self.push_rate = self._push.rate
        self._tails, self._pushed, self._pulled = tails, pushed, pulled
        self._edges, self._moments = _cells(tails, pulled, count)
        self._overheads = self._pull.overheads(self._edges)

    def _most(self, from_tail: int) -> Floats:
        """Return the most late bytes pushed before the pulls of each cell."""
        tails = np.array(self._tails)
        order = np.argsort(tails, kind="stable")
        moving = (tails >= from_tail) & (tails < tails.max())
        behind = np.cumsum(np.array(self._pulled, dtype=np.int64)[order])
        able = np.cumsum((np.array(self._pushed) * moving)[order])
        most = last_bytes(self._edges)
        place = np.searchsorted(behind, np.maximum(most - 1, 0), side="right")
        ratio = max(sent / size for sent, size in zip(self._pushed, self._pulled, strict=True))
        pulled = np.floor(ratio * most * (1 + OPERATION_ERROR))
        return np.asarray(np.minimum(able[place], pulled), dtype=np.float64)

    def lasting(self, most_right: int, count: int, from_tail: int) -> tuple[list[int], Floats]:
        """Return rising numbers of bytes pushed right, from 0, and T(R) less the rate of R bytes.

        It is the least time (ns) if the late bytes that are pushed right are more than the previous
        number and at most this number.
        """
        edges, moments, top = self._edges, self._moments, max(self._tails)
        step = max(-(-most_right // count), 1)
        cells = -(-most_right // step) + 1
        right = [place * step for place in range(cells)]
        rate, push_rate = self._pull.rate, self.push_rate
        pushing, most = self._push.overheads(np.array(right, float)), self._most(from_tail)
        pushing[np.tril_indices(cells)] = inf
        least_right = np.maximum((np.arange(cells) - 1) * step + 1, 0) * push_rate
        least_right[0] = 0
        # Time counted from the end, less the rates of all bytes so far.
        ends = np.full((len(edges), cells), inf)
        ends[0, 0] = 0
        early = rate * last_bytes(edges)[:, None] + push_rate * np.array(right)
        for cell in range(len(edges)):
            if cell:
                begin = np.maximum(ends[:cell], moments[cell] - early[:cell])
                begin += self._overheads[:cell, cell, None]
                np.minimum.reduce(begin, axis=0, out=ends[cell])
            now, passed = ends[cell], rate * edges[cell] + least_right
            can = min(cells - 1, -(-int(most[cell]) // step))
            while can:
                begin = np.maximum(now[:can], from_tail - early[cell, :can])
                begin[begin + passed[:can] >= top] = inf
                further = (begin[:, None] + pushing[:can, 1 : can + 1]).min(axis=0)
                if not (further < now[1 : can + 1]).any():
                    break
                np.minimum(now[1 : can + 1], further, out=now[1 : can + 1])
        return right, ends[-1] + rate * edges[-1]
