"""A start-up-aware bound for windows that are not nested.

Problem: as in `planner.caramel.nested`, for any windows: can a target M be reached, if a transfer
of s bytes takes at least α + β·s?

A block is a stretch of k or more successive transfers, the first of which leaves at h or later and
the last of which ends by M - t. It has room for (M - t - h - α·k) / β bytes. The transfer of one
parameter is a block of one. Suppose that for some a and b the parameters with heads from a on and
tails from b on have more bytes than that. Then some transfer outside carries one of them: it leaves
at a or later and ends by M - b. With what lies between, it makes a larger block: from a on if it
goes before, until M - b if it comes after. If neither can be, M cannot be reached. Which a and b to
look at is free; the nearest to the block are taken, in two measures. Blocks are looked at by their
number of transfers: one that lies within another of as many or fewer is refuted with that one. (If
the larger of the two is itself refuted by way of the smaller, that is no circle: every step adds a
transfer, and a plan has so many and no more.)

Guarantee: what is refuted cannot be reached by any plan. Not every target that cannot be reached is
refuted.

Complexity: O(heads · tails) a block in NumPy, of at most `GRID` of each; at most `BLOCKS` a target.
Source: own; it does without the widening that `nested` needs.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from operator import neg

import numpy as np

from planner.caramel.nested import Line
from planner.caramel.windows import Windows

__all__ = ["block_bound"]

GRID = 160
"""Heads, and tails, that are looked at."""

BLOCKS = 500
"""Blocks of one target; with more it is not refuted."""

HALVINGS = 6
"""Targets tried between the least and the largest."""


def block_bound(windows: Windows, line: Line, low: int, high: int) -> int:
    """Return a bound on the iteration of every plan, from `low` to `high`.

    Parameters
    ----------
    windows : Windows
        The parameters and their windows.
    line : (Fraction, Fraction)
        An affine cost (α, β) that no transfer undercuts.
    low, high : int
        A known bound and the value of a plan, in ns.
    """
    if not all(line):
        return low
    blocks = _Blocks(windows, line)
    for by_heads in (True, False):
        end = high
        for _ in range(HALVINGS):
            middle = (low + end) // 2
            if middle == low:
                break
            if blocks.refuted(middle, by_heads=by_heads):
                low = middle + 1
            else:
                end = middle
    return low


class _Blocks:
    """Bytes by head and tail, and which targets they rule out."""

    def __init__(self, windows: Windows, line: Line) -> None:
        self.startup, self.rate = line
        pairs = list(zip(windows.heads, windows.tails, windows.sizes, strict=True))
        self.heads = _some(windows.heads)
        self.tails = _some(windows.tails)
        self.bytes = np.zeros((len(self.heads), len(self.tails)), dtype=np.int64)
        for head, tail, size in pairs:
            self.bytes[_at_most(self.heads, head), _at_most(self.tails, tail)] += size
        self.bytes = self.bytes.cumsum(axis=0).cumsum(axis=1)
        head, tail, _ = max(pairs, key=lambda window: window[0] + window[1])
        self.first = _at_most(self.heads, head), _at_most(self.tails, tail)
        self.early = np.array(self.heads, dtype=np.int64)
        self.late = np.array(self.tails, dtype=np.int64)

    def refuted(self, target: int, *, by_heads: bool) -> bool:
        """Return whether it is proven that no plan reaches `target`."""
        waiting = [(1, *self.first)]
        seen: list[tuple[int, int]] = []
        while waiting:
            count, row, column = heappop(waiting)
            if any(i >= row and j >= column for i, j in seen):
                continue
            seen.append((row, column))
            stretch = target - self.heads[row] - self.tails[column]
            room = (stretch - self.startup * count) // self.rate
            if room < 0:
                continue  # there is no such block
            if self.bytes[-1, -1] <= room or len(seen) > BLOCKS:
                return False
            above, after = self._outside(row, column, int(room), by_heads=by_heads)
            heappush(waiting, (count + 1, above, column))
            heappush(waiting, (count + 1, row, after))
        return True

    def _outside(self, row: int, column: int, room: int, *, by_heads: bool) -> tuple[int, int]:
        """Return the nearest head and tail from which on there are too many bytes."""
        over = self.bytes[row:, column:] > room
        first = over.argmax(axis=1)
        rows = np.flatnonzero(over[np.arange(len(first)), first])
        rows, columns = rows + row, first[rows] + column
        earlier, later = self.early[row] - self.early[rows], self.late[column] - self.late[columns]
        far = earlier + later // 4 if by_heads else earlier // 4 + later
        nearest = int(far.argmin())
        return int(rows[nearest]), int(columns[nearest])


def _some(values: Sequence[int]) -> list[int]:
    """Return distinct values, falling, at most `GRID` of them, the least among them."""
    distinct = sorted(set(values))
    step = -(-len(distinct) // GRID)
    return distinct[::step][::-1]


def _at_most(falling: Sequence[int], value: int) -> int:
    """Return the place of the largest that is at most `value`."""
    return bisect_left(falling, -value, key=neg)
