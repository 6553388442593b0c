"""A start-up-aware lower bound for transfer windows that are not nested.

Problem: decide for any windows whether a target M can be reached, if s bytes take at least α + β·s.
Method: refute targets by growing blocks of consecutive transfers; see docs/caramel.md, "Why the
block bound holds". Unlike `planner.families.caramel.nested_windows` it widens no window.
Guarantee: no plan reaches a refuted target. Not every unreachable target is refuted.
Complexity: O(heads · tails) per block in NumPy, with at most `GRID` heads and `GRID` tails; at most
`BLOCKS` blocks per target.
Source: own.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from operator import neg

import numpy as np

from planner.families.caramel.windows import Windows
from planner.model.costs import Line

GRID = 160
"""Number of heads, and of tails, that are considered."""

BLOCKS = 500
"""Blocks examined per target; a target that needs more is not refuted."""

HALVINGS = 6
"""Bisection steps between the known bound and the plan's value."""


def block_bound(windows: Windows, line: Line, low: int, high: int) -> int:
    """Return a lower bound on the iteration of every plan, at least `low` (ns).

    `line` is an affine cost (α, β) that no transfer undercuts; `low` and `high` are a known bound
    and the value of a plan (ns).
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
    """Bytes by head and tail, and the targets that they refute."""

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
        """Return whether no plan is proven to reach `target`."""
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
                continue  # no such block exists
            if self.bytes[-1, -1] <= room or len(seen) > BLOCKS:
                return False
            above, after = self._outside(row, column, int(room), by_heads=by_heads)
            heappush(waiting, (count + 1, above, column))
            heappush(waiting, (count + 1, row, after))
        return True

    def _outside(self, row: int, column: int, room: int, *, by_heads: bool) -> tuple[int, int]:
        """Return the nearest head and tail from which on there are more than `room` bytes."""
        over = self.bytes[row:, column:] > room
        first = over.argmax(axis=1)
        rows = np.flatnonzero(over[np.arange(len(first)), first])
        rows, columns = rows + row, first[rows] + column
        earlier, later = self.early[row] - self.early[rows], self.late[column] - self.late[columns]
        far = earlier + later // 4 if by_heads else earlier // 4 + later
        nearest = int(far.argmin())
        return int(rows[nearest]), int(columns[nearest])


def _some(values: Sequence[int]) -> list[int]:
    """Return at most `GRID` distinct values, falling, the least one included."""
    distinct = sorted(set(values))
    step = -(-len(distinct) // GRID)
    return distinct[::step][::-1]


def _at_most(falling: Sequence[int], value: int) -> int:
    """Return the place of the largest value that is at most `value`."""
    return bisect_left(falling, -value, key=neg)
