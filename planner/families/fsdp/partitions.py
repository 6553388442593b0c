"""Optimal units without a memory limit: dynamic programming over Pareto-optimal choices.

Problem: nothing is gathered twice, everything is issued as early as possible, and no reduce-scatter
waits for a buffer. Which units give the shortest iteration?
Method: from the last layer to the first, keep Pareto-optimal (gather end, reduce-scatter end, sum
end). Beyond `kept` choices, keep one per cell; a second run with the least of each cell gives the
bound. Recurrence: docs/fsdp.md, "How the best units are found".
Guarantee: the bound holds for every plan with these units, whatever the memory limit. The plan is
optimal if no more than `kept` choices are Pareto-optimal anywhere.
Complexity: O(layers · layers of a unit · kept), in arrays.
Source: own, after iBatch in both directions; thinning after Ibarra and Kim's scheme for knapsacks.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from planner.families.fsdp.problem import Mesh, Problem
from planner.model.costs import TransferCost
from planner.solving.deadline import NEVER, Deadline

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Partition(NamedTuple):
    """Units, their iteration time, and a lower bound for any units (0 if unknown)."""

    ranges: tuple[tuple[int, int], ...]
    iteration_ns: int
    bound_ns: int


class _Choices(NamedTuple):
    """Choices of units from a start on, one per row of int64 columns (times below 2^63)."""

    gathered: "NDArray[np.int64]"
    scattered: "NDArray[np.int64]"
    summed: "NDArray[np.int64]"  # the last end in the backward pass
    stop: "NDArray[np.int64]"  # end of the first unit
    behind: "NDArray[np.int64]"  # row of the choice that follows, among those from `stop` on

    @classmethod
    def of(cls, *columns: Any) -> "_Choices":
        """Return choices from columns, which are broadcast against each other."""
        return cls(*(array.astype(np.int64) for array in np.broadcast_arrays(*columns)))

    def only(self, rows: Any) -> "_Choices":
        """Return the choices of some rows."""
        return _Choices(*(column[rows] for column in self))

    def put(self, row: int, others: "_Choices") -> int:
        """Write other choices from a row on; return the row after them."""
        end = row + len(others.stop)
        for column, other in zip(self, others, strict=True):
            column[row:end] = other
        return end

    @property
    def iterations(self) -> "NDArray[np.int64]":
        """Iteration time of each choice by itself."""
        return self.gathered + self.summed


def best_units(
    problem: Problem,
    mesh: Mesh,
    *,
    most_bytes: int | None = None,
    starts: Sequence[int] | None = None,
    fits: Callable[[int, int], bool] | None = None,
    kept: int = 64,
    bounded: bool = False,
    deadline: Deadline = NEVER,
) -> Partition:
    """Return the best units; the memory limit counts only through `fits`.

    `most_bytes` caps the parameters of units of several layers. `starts` are the layers at which
    units may begin, from 0 on (default: all that ties allow). `fits` says whether a range of layers
    may be a unit. At most `kept` Pareto-optimal choices are kept per layer; if that drops any, the
    bound is 0 unless `bounded`. Raises `TimeUpError`.
    """
    if starts is None:
        starts = [layer for layer in range(problem.layers) if problem.cuts[layer]]
    chain = _Chain(problem, mesh, [*starts, problem.layers], most_bytes, fits)
    choices, proven = chain.choices(kept, deadline)
    best, row = int(choices[0].iterations.min()), int(choices[0].iterations.argmin())
    ranges, start = [], 0
    while start < problem.layers:
        stop, row = int(choices[start].stop[row]), int(choices[start].behind[row])
        ranges.append((start, stop))
        start = stop
    bound = best if proven else 0
    if bounded and not proven:
        relaxed, _ = chain.choices(kept, deadline, real=False)
        bound = min(best, int(relaxed[0].iterations.min()))
    return Partition(tuple(ranges), best, bound)


class _Chain:
    """The possible units of a chain, and their transfer times."""

    def __init__(
        self,
        problem: Problem,
        mesh: Mesh,
        starts: Sequence[int],
        most_bytes: int | None,
        fits: Callable[[int, int], bool] | None,
    ) -> None:
        self.problem, self.mesh, self.starts = problem, mesh, starts
        self.most_bytes, self.fits = most_bytes, fits
        self.apart = problem.apart(mesh)
        sums = problem.prefixes["parameter_bytes"], problem.prefixes["gradients"]
        self._sizes, self._made, self._shares = map(
            np.array, (*sums, problem.share_sums[mesh.shards])
        )

    def units(self, place: int) -> "tuple[NDArray[np.int64], ...]":
        """Return the ends of the units that begin at a place in `starts`, and their times.

        The times are those of their gathers, reduce-scatters and sums over replicas.
        """
        sizes, start = self.problem.prefixes["parameter_bytes"], self.starts[place]
        last = len(self.starts) - 1
        if self.most_bytes is not None:
            farthest = bisect_right(sizes, sizes[start] + self.most_bytes) - 1
            last = max(place + 1, bisect_right(self.starts, farthest) - 1)
        stops = self.starts[place + 1 : last + 1]
        if self.fits is not None:
            stops = [stop for stop in stops if self.fits(start, stop)]
        ends, mesh = np.array(stops, np.int64), self.mesh
        reduces = _times(mesh.reduce_scatter, self._made[ends] - self._made[start])
        added = _times(mesh.all_reduce, self._shares[ends] - self._shares[start])
        if not self.apart:
            reduces, added = reduces + added, 0 * added
        gathers = _times(mesh.all_gather, self._sizes[ends] - self._sizes[start])
        return ends, gathers, reduces, added

    def choices(
        self, kept: int, deadline: Deadline, *, real: bool = True
    ) -> tuple[dict[int, _Choices], bool]:
        """Return choices from each start on, and whether all Pareto-optimal choices were kept.

        Unless they are `real`, choices may not exist, but no units are better than all of them.
        """
        sums, count = self.problem.prefixes, self.problem.layers
        forward, backward = sums["forward_ns"], sums["backward_ns"]
        choices: dict[int, _Choices] = {count: _Choices.of([0], 0, 0, count, 0)}
        # All choices in one table, with the first row and the number of rows of each start.
        every = _Choices(*np.empty((5, (kept + 2) * len(self.starts)), np.int64))
        begins, counts = np.zeros((2, count + 1), np.int64)
        counts[count], end = 1, every.put(0, choices[count])
        complete = True
        for place in range(len(self.starts) - 2, -1, -1):
            deadline.check()
            start = self.starts[place]
            stops, gathers, reduces, added = self.units(place)
            sizes = counts[stops]
            behind = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            follow = every.only(behind + np.repeat(begins[stops], sizes))
            ahead, computed = forward[count] - forward[start], backward[count] - backward[start]
            scattered = np.maximum(follow.scattered, computed) + np.repeat(reduces, sizes)
            new = _Choices(
                np.repeat(gathers, sizes) + np.maximum(ahead, follow.gathered),
                scattered,
                np.maximum(scattered, follow.summed) + np.repeat(added, sizes),
                np.repeat(stops, sizes),
                behind,
            )
            new = _undominated(new)
            if len(new.stop) > kept:
                complete = False
                new = _thinned(new, kept, real=real)
            choices[start] = new
            begins[start], counts[start], end = end, len(new.stop), every.put(end, new)
        return choices, complete


def _times(cost: TransferCost | None, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Return the times of transfers; empty transfers take none."""
    return 0 * sizes if cost is None else np.where(sizes, cost.costs_ns(sizes), 0)


def _thinned(choices: _Choices, kept: int, *, real: bool) -> _Choices:
    """Return one choice per cell: the fastest, or a relaxed one with the least of each end."""
    low = choices.gathered[0]
    cells = (choices.gathered - low) // ((choices.gathered[-1] - low) // kept + 1)
    if real:
        order = np.lexsort((choices.iterations, cells))
        return choices.only(order[np.diff(cells[order], prepend=-1) > 0])
    begins = np.flatnonzero(np.diff(cells, prepend=-1))
    least = [np.minimum.reduceat(column, begins) for column in choices[:3]]
    return _undominated(_Choices.of(*least, 0, 0))


def _undominated(choices: _Choices) -> _Choices:
    """Return the Pareto-optimal choices."""
    choices = choices.only(np.lexsort((choices.summed, choices.scattered, choices.gathered)))
    _, scattered, summed, *_ = choices
    if not len(scattered):
        return choices
    # A vectorised test against one earlier row drops most dominated rows before the exact loop.
    both = scattered + summed
    least = np.minimum.accumulate(both)
    leads = np.flatnonzero(np.diff(least, prepend=least[0] + 1))
    leader = leads[np.searchsorted(leads, np.arange(len(both)), side="left") - 1]
    late = (scattered >= scattered[leader]) & (summed >= summed[leader])
    late[0] = False
    left = choices.only(~late)
    rows: list[int] = []
    ends: list[tuple[int, int]] = []  # (reduce-scatter end, sum end) of the front so far
    for row, end in enumerate(zip(left.scattered.tolist(), left.summed.tolist(), strict=True)):
        if any(other[0] <= end[0] and other[1] <= end[1] for other in ends):
            continue
        rows.append(row)
        ends = [other for other in ends if not (end[0] <= other[0] and end[1] <= other[1])]
        ends.append(end)
    return left.only(rows)
