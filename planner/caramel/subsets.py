"""Grouping and order of whole parameters, to the optimum, by dynamic programming over subsets.

Problem: which whole parameters to send together, and in which order, so that the iteration is
shortest (see `planner.caramel.exact` for the model)?

For a target M: the earliest end of transfers that have sent a set S of parameters and kept M,

    end(S) = min over last groups G of max(end(S - G), head(G)) + f(bytes of G),
             where that + tail(G) <= M.

M is reachable if everything can be sent. An unreachable M is raised to the least value that would
have allowed one more transfer, a reachable one lowered to what its plan really costs.

Guarantee: optimal, for any cost. Complexity: O(3^n) a target, in blocks of numpy; few targets.
Source: own; the partition recursion of dynamic programming over subsets.
"""

import numpy as np
from numpy.typing import NDArray

from planner.caramel.loads import Load
from planner.caramel.windows import Windows
from planner.costs import TransferCost
from planner.deadline import Deadline

__all__ = ["best_whole"]

_NEVER = np.iinfo(np.int64).max


def best_whole(
    windows: Windows, cost: TransferCost, below: int, lower: int, deadline: Deadline
) -> tuple[list[Load] | None, bool]:
    """Return the best plan of whole parameters that costs less than `below`.

    Parameters
    ----------
    windows : Windows
        A dozen parameters at most: memory and time grow as 3^n.
    cost : TransferCost
        What a transfer costs.
    below : int
        Value of a known plan, in ns.
    lower : int
        A known bound, in ns.
    deadline : Deadline
        When to stop.

    Returns
    -------
    loads : list of Load or None
        The plan; None if there is none below.
    timed_out : bool
        Whether the deadline passed before that was proven.
    """
    table = _Table(windows, cost)
    best = None
    high = min(below, int(_NEVER))  # known to be reachable, or not wanted
    low = lower - 1  # known to be unreachable
    while high - low > 1:
        target = low + (high - low) // 2 if best else high - 1
        end, needed = table.ends(target, deadline)
        if end is None:
            return best, True
        if end[-1] == _NEVER:
            low = max(target, needed - 1)
            if best is None:
                break
        else:
            best, high = table.plan(end, target)
    return best, False


class _Table:
    """Head, tail and time of every subset as one transfer; index j of a bit is parameter j.

    Times may be as large as 64 bits hold: sums of several are compared by their differences.
    """

    def __init__(self, windows: Windows, cost: TransferCost) -> None:
        self.windows = windows
        head = tail = size = np.zeros(1, dtype=np.int64)
        for j, own in enumerate(windows.sizes):
            head = np.concatenate([head, np.maximum(head, windows.heads[j])])
            tail = np.concatenate([tail, np.maximum(tail, windows.tails[j])])
            size = np.concatenate([size, size + own])
        self.head, self.tail, self.time = head, tail, cost.costs_ns(size)
        self.left = np.minimum(self.time, _NEVER - tail) + tail  # from a start to the end
        self.parts = [self._subsets(left) for left in range(len(head))]

    def _subsets(self, of: int) -> NDArray[np.int64]:
        """Return every non-empty subset of a set."""
        subsets = np.zeros(1, dtype=np.int64)
        for j in range(len(self.windows.sizes)):
            if of >> j & 1:
                subsets = np.concatenate([subsets, subsets | 1 << j])
        return subsets[1:]

    def ends(self, target: int, deadline: Deadline) -> tuple[NDArray[np.int64] | None, int]:
        """Return the earliest end for every sent set, and the least target that allows more.

        None if the deadline passed.
        """
        everything = len(self.head) - 1
        end = np.full(len(self.head), _NEVER, dtype=np.int64)
        end[0] = 0
        least = int(_NEVER)
        for sent in range(everything):
            if deadline.passed:
                return None, 0
            if end[sent] == _NEVER:
                continue
            group = self.parts[everything ^ sent]
            start = np.maximum(end[sent], self.head[group])
            over = start - target + self.left[group]
            kept = over <= 0
            least = min(least, int(over[~kept].min(initial=_NEVER)))
            fitting = group[kept]
            after = start[kept] + self.time[fitting]
            together = sent | fitting
            end[together] = np.minimum(end[together], after)
        return end, target + least

    def plan(self, end: NDArray[np.int64], target: int) -> tuple[list[Load], int]:
        """Return the groups of a reachable target, and what they really cost."""
        sizes = self.windows.sizes
        sent = len(self.head) - 1
        value = self.windows.compute_ns
        loads: list[Load] = []
        while sent:
            group = self.parts[sent]
            before = end[sent ^ group]
            known = before != _NEVER
            group, before = group[known], before[known]
            start = np.maximum(before, self.head[group])
            fits = (self.time[group] == end[sent] - start) & (start - target <= -self.left[group])
            last = int(group[fits][0])
            value = max(value, int(end[sent]) + int(self.tail[last]))
            loads.append(tuple((j, size) for j, size in enumerate(sizes) if last >> j & 1))
            sent ^= last
        return loads[::-1], value
