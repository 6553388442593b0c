"""Optimal grouping and order of whole parameters, by dynamic programming over subsets.

Problem: as in `planner.families.caramel.exact_split`, with whole parameters only. Method: for a
target M, the earliest end of transfers that have sent a set S within M is end(S) = min over last
groups G of max(end(S - G), head(G)) + f(bytes of G), where that + tail(G) <= M. An unreachable M is
raised to the least value that allows one more transfer, a reachable one lowered to its plan's
value. Guarantee: optimal, for any cost. Complexity: O(3^n) per target in NumPy; few targets.
Source: own; the partition recursion of dynamic programming over subsets.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from planner.families.caramel.pricing import Load
from planner.families.caramel.windows import Windows
from planner.model.costs import TransferCost
from planner.solving.deadline import Deadline, TimeUpError

_NEVER = np.iinfo(np.int64).max


def best_whole(
    windows: Windows, cost: TransferCost, below: int, lower: int, deadline: Deadline
) -> tuple[list[Load] | None, bool]:
    """Return the best plan of whole parameters below `below` (ns), or None, and `timed_out`.

    For a dozen parameters at most, as memory and time grow as 3^n. `lower` is a known bound (ns).
    `timed_out` tells whether the deadline passed before the result was proven.
    """
    table = _Table(windows, cost)
    best = None
    high = min(below, int(_NEVER))  # reachable, or not wanted
    low = lower - 1  # unreachable
    while high - low > 1:
        target = low + (high - low) // 2 if best else high - 1
        try:
            found, value = table.best(target, deadline)
        except TimeUpError:
            return best, True
        if found is not None:
            best, high = found, value
        elif best is None:
            break
        else:
            low = max(target, value - 1)
    return best, False


def fewest_whole(
    windows: Windows, cost: TransferCost, most_ns: int, below: int, deadline: Deadline
) -> list[Load] | None:
    """Return the fewest transfers of whole parameters within `most_ns`; None if `below` or more.

    Raises `TimeUpError` at the deadline.
    """
    if most_ns < windows.compute_ns:
        return None
    return _Table(windows, cost).fewest(most_ns, below, deadline)


@cache
def _parts(count: int) -> list[NDArray[np.int64]]:
    """Return the non-empty subsets of every set of `count` parameters."""
    parts = [np.zeros(0, dtype=np.int64)]
    for j in range(count):
        bit = np.array([1 << j], dtype=np.int64)
        parts += [np.concatenate([part, bit, part | bit]) for part in parts]
    return parts


class _Table:
    """Head, tail and time of every subset as one transfer; bit j is parameter j.

    Times may need all of 64 bits, so sums are compared by their differences.
    """

    def __init__(self, windows: Windows, cost: TransferCost) -> None:
        self.windows = windows
        head = tail = size = np.zeros(1, dtype=np.int64)
        for j, own in enumerate(windows.sizes):
            head = np.concatenate([head, np.maximum(head, windows.heads[j])])
            tail = np.concatenate([tail, np.maximum(tail, windows.tails[j])])
            size = np.concatenate([size, size + own])
        self.head, self.tail, self.time = head, tail, cost.costs_ns(size)
        self.left = np.minimum(self.time, _NEVER - tail) + tail  # from start to iteration end
        self.parts = _parts(len(windows.sizes))

    def best(self, target: int, deadline: Deadline) -> tuple[list[Load] | None, int]:
        """Return a plan within `target`, and its value; or None, and the next target to try.

        Raises `TimeUpError` at the deadline.
        """
        everything = len(self.head) - 1
        end = np.full(len(self.head), _NEVER, dtype=np.int64)  # the earliest, for every sent set
        end[0] = 0
        last = np.zeros(len(self.head), dtype=np.int64)
        least = int(_NEVER)
        for sent in range(everything):
            deadline.check()
            if end[sent] == _NEVER:
                continue
            group = self.parts[everything ^ sent]
            start = np.maximum(end[sent], self.head[group])
            over = start - target + self.left[group]
            kept = over <= 0
            least = min(least, int(over[~kept].min(initial=_NEVER)))
            self._sooner(end, last, sent, group[kept], start[kept])
        if end[everything] == _NEVER:
            return None, target + least
        sent, loads, value = everything, [], self.windows.compute_ns
        while sent:
            group_now = int(last[sent])
            value = max(value, int(end[sent]) + int(self.tail[group_now]))
            loads.append(self._load(group_now))
            sent ^= group_now
        return loads[::-1], value

    def fewest(self, most_ns: int, below: int, deadline: Deadline) -> list[Load] | None:
        """Return the fewest groups within a time, by the earliest ends with 1, 2, … groups.

        A set that fewer groups send no later is not extended: with those groups, a plan needs fewer
        in all.
        """
        everything = len(self.head) - 1
        end = np.full(len(self.head), _NEVER, dtype=np.int64)
        with_fewer = end.copy()
        end[0] = 0
        rounds: list[NDArray[np.int64]] = []
        while len(rounds) < below - 1 and end[everything] == _NEVER:
            later = np.full(len(self.head), _NEVER, dtype=np.int64)
            last = np.zeros(len(self.head), dtype=np.int64)
            for sent in np.flatnonzero(end < with_fewer)[::-1].tolist():  # ties: least set wins
                deadline.check()
                group = self.parts[everything ^ sent]
                start = np.maximum(end[sent], self.head[group])
                kept = start - most_ns <= -self.left[group]
                self._sooner(later, last, sent, group[kept], start[kept])
            rounds.append(last)
            with_fewer, end = np.minimum(with_fewer, end), later
        if end[everything] == _NEVER:
            return None
        sent, loads = everything, []
        for last in reversed(rounds):
            loads.append(self._load(int(last[sent])))
            sent ^= int(last[sent])
        return loads[::-1]

    def _sooner(
        self,
        end: NDArray[np.int64],
        last: NDArray[np.int64],
        sent: int,
        group: NDArray[np.int64],
        start: NDArray[np.int64],
    ) -> None:
        """Update the least end of each set, and its last group, where these groups end no later."""
        after, together = start + self.time[group], sent | group
        sooner = after <= end[together]
        end[together[sooner]] = after[sooner]
        last[together[sooner]] = group[sooner]

    def _load(self, group: int) -> Load:
        sizes = self.windows.sizes
        return tuple((j, size) for j, size in enumerate(sizes) if group >> j & 1)
