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
Complexity: O(layers · layers of a unit · kept). Source: own, after iBatch both ways; thinning after
Ibarra and Kim's scheme for knapsacks.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import add
from typing import Any, NamedTuple

from planner.deadline import NEVER, Deadline
from planner.fsdp.problem import Mesh, Problem

__all__ = ["Partition", "best_units"]


class Partition(NamedTuple):
    """Units, what they take, and what any units take at least, if that was asked for."""

    ranges: tuple[tuple[int, int], ...]
    iteration_ns: int
    bound_ns: int


class _Label(NamedTuple):
    gathered: int
    scattered: int
    summed: int  # the last end, in the backward pass
    units: Any  # where the first one ends, and those behind it


class _Front(NamedTuple):
    """Units in front of a layer: the least that their transfers take, whatever they are."""

    gathers: int
    reduces: int
    sums: int


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
    labels, proven = chain.labels(kept, None, deadline)
    best = min(labels, key=_iteration)
    ranges, start, trail = [], 0, best.units
    while trail is not None:
        stop, trail = trail
        ranges.append((start, stop))
        start = stop
    bound = _iteration(best) if proven else 0
    if bounded and not proven:
        relaxed, _ = chain.labels(kept, _iteration(best), deadline)
        bound = min(map(_iteration, [best, *relaxed]))
    return Partition(tuple(ranges), _iteration(best), bound)


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
        self.shares = problem.share_sums(mesh.shards)

    def units(self, place: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield where units from a place on end, and what their transfers take."""
        sums, mesh, start = self.problem.prefixes, self.mesh, self.starts[place]
        sizes, gradients = sums["parameter_bytes"], sums["gradients"]
        last = len(self.starts) - 1
        if self.most_bytes is not None:
            farthest = bisect_right(sizes, sizes[start] + self.most_bytes) - 1
            last = max(place + 1, bisect_right(self.starts, farthest) - 1)
        for stop in self.starts[place + 1 : last + 1]:
            if self.fits is not None and not self.fits(start, stop):
                continue
            reduce = mesh.reduce_ns(gradients[stop] - gradients[start])
            added = mesh.sum_ns(self.shares[stop] - self.shares[start])
            if not self.apart:
                reduce, added = reduce + added, 0
            yield stop, mesh.gather_ns(sizes[stop] - sizes[start]), reduce, added

    def fronts(self) -> tuple[dict[int, _Front], _Front]:
        """Return the least of all that is in front of each start, and of a first unit."""
        fronts = {0: _Front(0, 0, 0)}
        first = None
        for place, start in enumerate(self.starts[:-1]):
            if start not in fronts:
                continue
            before = fronts[start]
            for stop, *costs in self.units(place):
                whole = _Front(*map(add, before, costs))
                fronts[stop] = _least(whole, fronts.get(stop, whole))
                if not place:
                    first = _least(whole, first or whole)
        assert first is not None
        return fronts, first

    def labels(self, kept: int, below: int | None, deadline: Deadline) -> tuple[list[_Label], bool]:
        """Return choices of the whole chain, and whether all undominated ones were kept.

        Below a time, those that may not exist, but of which one is never worse than any units that
        take less.
        """
        sums, count = self.problem.prefixes, self.problem.layers
        forward, backward = sums["forward_ns"], sums["backward_ns"]
        labels: dict[int, list[_Label]] = {count: [_Label(0, 0, 0, None)]}
        fronts, first = ({}, None) if below is None else self.fronts()
        complete = True
        for place in range(len(self.starts) - 2, -1, -1):
            deadline.check()
            start = self.starts[place]
            if below is not None and start not in fronts:
                labels[start] = []
                continue
            ahead, computed = forward[count] - forward[start], backward[count] - backward[start]
            candidates = []
            for stop, gather, reduce, added in self.units(place):
                for gathered, before, summed, units in labels[stop]:
                    scattered = max(before, computed) + reduce
                    candidates.append(
                        _Label(
                            gather + max(ahead, gathered),
                            scattered,
                            max(scattered, summed) + added,
                            (stop, units),
                        )
                    )
            if below is not None and first is not None and start:
                ends = forward[count] + first.gathers, backward[count] + first.reduces
                front = fronts[start]
                candidates = [
                    label
                    for label in candidates
                    if _finished(label, front, first, ends, apart=self.apart) < below
                ]
            labels[start] = _undominated(candidates)
            if len(labels[start]) > kept:
                complete = False
                labels[start] = _thinned(labels[start], kept, real=below is None)
        return labels[0], complete


def _finished(
    label: _Label, front: _Front, first: _Front, ends: tuple[int, int], *, apart: bool
) -> int:
    """Return what an iteration takes at least with units behind a front."""
    gathered = max(label.gathered + front.gathers, ends[0])
    scattered = max(label.scattered + front.reduces, ends[1])
    if not apart:
        return gathered + scattered
    return gathered + max(label.summed + front.sums, scattered + first.sums)


def _least(left: _Front, right: _Front) -> _Front:
    return _Front(*map(min, left, right))


def _iteration(label: _Label) -> int:
    return label.gathered + label.summed


def _thinned(labels: list[_Label], kept: int, *, real: bool) -> list[_Label]:
    """Return one of each cell: that which ends first, or the least of all its ends."""
    low = labels[0].gathered
    width = (labels[-1].gathered - low) // kept + 1
    cells: dict[int, _Label] = {}
    for label in labels:
        cell = (label.gathered - low) // width
        other = cells.get(cell, label)
        if real:
            cells[cell] = min(other, label, key=_iteration)
        else:
            gathered, scattered, summed = map(min, other[:3], label[:3])
            cells[cell] = _Label(gathered, scattered, summed, None)
    return list(cells.values()) if real else _undominated(list(cells.values()))


def _undominated(labels: list[_Label]) -> list[_Label]:
    """Return those than which no other has everything as early."""
    best: list[_Label] = []
    ends: list[tuple[int, int]] = []  # of both kinds of transfers, the first ones falling
    for label in sorted(labels, key=lambda label: label[:3]):
        if any(
            scattered <= label.scattered and summed <= label.summed for scattered, summed in ends
        ):
            continue
        best.append(label)
        ends = [end for end in ends if not (label.scattered <= end[0] and label.summed <= end[1])]
        ends.append((label.scattered, label.summed))
    return best
