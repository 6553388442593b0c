"""Units that make the iteration shortest if memory is no object.

Problem: nothing is gathered twice, everything is issued as early as it can be, and no
reduce-scatter waits for a buffer. Which units are best?

Method: the two passes meet only between them. Going through the layers from the last to the first,
a unit in front of others makes of the time g that their gathers and computations take from the
first gather on, and of the time f from the beginning of the backward pass to their last
reduce-scatter's end: gather + max(its computation, g), and max(f, when it has been computed) +
reduce-scatter. An iteration takes g + f of all units. Sums over copies that have links of their own
end at s: max(s, f) + sum, and s comes in place of f; others share them, and lengthen f. Less of all
is never worse, so only undominated choices are kept: of the whole chain, the one that takes least.

Of more than `kept` choices, the range of g is cut into so many cells, and of each cell one is kept.
The bound is what a second run finds, which takes of each cell the least of each end, a choice that
may not exist; it leaves out choices that cannot become better than the plan, as what is in front
takes at least the cheapest transfers of any units.

Guarantee: the bound holds for every plan, whatever the memory limit; the plan is the best one if no
more than `kept` choices are undominated anywhere. With `most_bytes`, the same of units no larger.
Complexity: O(layers · layers of a unit · kept), in arrays. Source: own, after iBatch both ways;
thinning after Ibarra and Kim's scheme for knapsacks.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from planner.costs import TransferCost
from planner.deadline import NEVER, Deadline
from planner.fsdp.problem import Mesh, Problem

__all__ = ["Partition", "best_units"]

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEVER = 2**63 - 1


class Partition(NamedTuple):
    """Units, what they take, and what any units take at least, if that was asked for."""

    ranges: tuple[tuple[int, int], ...]
    iteration_ns: int
    bound_ns: int


class _Choices(NamedTuple):
    """Units from a start on, each a row of int64: no sum of a problem's times reaches 2^63."""

    gathered: "NDArray[np.int64]"
    scattered: "NDArray[np.int64]"
    summed: "NDArray[np.int64]"  # the last end, in the backward pass
    stop: "NDArray[np.int64]"  # where the first unit ends
    behind: "NDArray[np.int64]"  # which choice of that start follows

    @classmethod
    def of(cls, *columns: Any) -> "_Choices":
        """Return choices with the same entry in each column, or one each."""
        return cls(*(array.astype(np.int64) for array in np.broadcast_arrays(*columns)))

    def only(self, rows: Any) -> "_Choices":
        """Return some of them."""
        return _Choices(*(column[rows] for column in self))

    def put(self, row: int, others: "_Choices") -> int:
        """Write others from a row on; return the row behind them."""
        end = row + len(others.stop)
        for column, other in zip(self, others, strict=True):
            column[row:end] = other
        return end

    @property
    def iterations(self) -> "NDArray[np.int64]":
        """What an iteration of nothing else takes."""
        return self.gathered + self.summed

    def least(self) -> int:
        """Return the least of that."""
        return int(self.iterations.min(initial=_NEVER))


class _Front(NamedTuple):
    """Units in front of a layer: the least that their transfers take, whatever they are."""

    gathers: int
    reduces: int
    sums: int


class _Units(NamedTuple):
    """Units from a start on: where each ends, and what its transfers take."""

    stops: "NDArray[np.int64]"
    gathers: "NDArray[np.int64]"
    reduces: "NDArray[np.int64]"
    sums: "NDArray[np.int64]"


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
    """Return the best units.

    Parameters
    ----------
    problem : Problem
        The problem; its memory limit is disregarded but for `fits`.
    mesh : Mesh
        One of its meshes.
    most_bytes : int, optional
        Parameters of the largest unit of several layers.
    starts : sequence of int, optional
        Layers that units may begin with, from 0 on; by default all that ties allow.
    fits : callable, optional
        Tells whether a range of layers may be a unit; some ranges that may make up the chain.
    kept : int
        Undominated choices to keep.
    bounded : bool
        Whether to bound what other units take; else the bound is 0 where not all choices were kept.
    deadline : Deadline
        When to give up.
    """
    if starts is None:
        starts = [layer for layer in range(problem.layers) if problem.cuts[layer]]
    chain = _Chain(problem, mesh, [*starts, problem.layers], most_bytes, fits)
    choices, proven = chain.choices(kept, None, deadline)
    best = choices[0].least()
    ranges, start, row = [], 0, int(choices[0].iterations.argmin())
    while start < problem.layers:
        stop, row = int(choices[start].stop[row]), int(choices[start].behind[row])
        ranges.append((start, stop))
        start = stop
    bound = best if proven else 0
    if bounded and not proven:
        relaxed, _ = chain.choices(kept, best, deadline)
        bound = min(best, relaxed[0].least())
    return Partition(tuple(ranges), best, bound)


class _Chain:
    """The units that may be, and what their transfers take."""

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
            np.array, (*sums, problem.share_sums(mesh.shards))
        )

    def units(self, place: int) -> _Units:
        """Return the units from a place on."""
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
        return _Units(ends, gathers, reduces, added)

    def fronts(self) -> tuple[dict[int, _Front], _Front]:
        """Return the least of all that is in front of each start, and of a first unit."""
        least = np.full((3, self.problem.layers + 1), _NEVER)
        least[:, 0] = 0
        for place, start in enumerate(self.starts[:-1]):
            if least[0, start] < _NEVER:
                stops, *costs = self.units(place)
                whole = least[:, start, None] + np.stack(costs)
                least[:, stops] = np.minimum(least[:, stops], whole)
        first = (column.min() for column in self.units(0)[1:])
        fronts = {
            start: _Front(*least[:, start].tolist())
            for start in self.starts
            if least[0, start] < _NEVER
        }
        return fronts, _Front(*map(int, first))

    def choices(
        self, kept: int, below: int | None, deadline: Deadline
    ) -> tuple[dict[int, _Choices], bool]:
        """Return choices from each start on, and whether all undominated ones were kept.

        Below a time, those that may not exist, but of which one is never worse than any units that
        take less.
        """
        sums, count = self.problem.prefixes, self.problem.layers
        forward, backward = sums["forward_ns"], sums["backward_ns"]
        choices: dict[int, _Choices] = {count: _Choices.of([0], 0, 0, count, 0)}
        # All of them one behind the other: from which row on those of a start lie, and how many.
        every = _Choices(*np.empty((5, (kept + 2) * len(self.starts)), np.int64))
        begins, counts = np.zeros((2, count + 1), np.int64)
        counts[count], end = 1, every.put(0, choices[count])
        fronts, first = ({}, None) if below is None else self.fronts()
        complete = True
        for place in range(len(self.starts) - 2, -1, -1):
            deadline.check()
            start = self.starts[place]
            if below is not None and start not in fronts:
                choices[start] = choices[count].only([])
                continue
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
            if below is not None and first is not None and start:
                least = forward[count] + first.gathers, backward[count] + first.reduces
                finished = _finished(new, fronts[start], first, least, apart=self.apart)
                new = new.only(finished < below)
            new = _undominated(new)
            if len(new.stop) > kept:
                complete = False
                new = _thinned(new, kept, real=below is None)
            choices[start] = new
            begins[start], counts[start], end = end, len(new.stop), every.put(end, new)
        return choices, complete


def _finished(
    choices: _Choices, front: _Front, first: _Front, ends: tuple[int, int], *, apart: bool
) -> "NDArray[np.int64]":
    """Return what an iteration takes at least with units behind a front."""
    gathered = np.maximum(choices.gathered + front.gathers, ends[0])
    scattered = np.maximum(choices.scattered + front.reduces, ends[1])
    if not apart:
        return gathered + scattered
    last: NDArray[np.int64] = np.maximum(choices.summed + front.sums, scattered + first.sums)
    return gathered + last


def _times(cost: TransferCost | None, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Return what transfers of some sizes take; those of nothing take none."""
    return 0 * sizes if cost is None else np.where(sizes, cost.costs_ns(sizes), 0)


def _thinned(choices: _Choices, kept: int, *, real: bool) -> _Choices:
    """Return one of each cell: that which ends first, or the least of all its ends."""
    low = choices.gathered[0]
    cells = (choices.gathered - low) // ((choices.gathered[-1] - low) // kept + 1)
    if real:
        order = np.lexsort((choices.iterations, cells))
        return choices.only(order[np.diff(cells[order], prepend=-1) > 0])
    begins = np.flatnonzero(np.diff(cells, prepend=-1))
    least = [np.minimum.reduceat(column, begins) for column in choices[:3]]
    return _undominated(_Choices.of(*least, 0, 0))


def _undominated(choices: _Choices) -> _Choices:
    """Return those than which no other has everything as early."""
    choices = choices.only(np.lexsort((choices.summed, choices.scattered, choices.gathered)))
    _, scattered, summed, *_ = choices
    if not len(scattered):
        return choices
    # What one before has as early; first by what is quickly seen of many at once.
    both = scattered + summed
    least = np.minimum.accumulate(both)
    leads = np.flatnonzero(np.diff(least, prepend=least[0] + 1))
    leader = leads[np.searchsorted(leads, np.arange(len(both)), side="left") - 1]
    late = (scattered >= scattered[leader]) & (summed >= summed[leader])
    late[0] = False
    left = choices.only(~late)
    rows: list[int] = []
    ends: list[tuple[int, int]] = []  # of both kinds of transfers, the first ones falling
    for row, end in enumerate(zip(left.scattered.tolist(), left.summed.tolist(), strict=True)):
        if any(other[0] <= end[0] and other[1] <= end[1] for other in ends):
            continue
        rows.append(row)
        ends = [other for other in ends if not (end[0] <= other[0] and end[1] <= other[1])]
        ends.append(end)
    return left.only(rows)
