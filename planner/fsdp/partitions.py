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

Guarantee: the least iteration, and so a bound for every memory limit, as long as no more than
`kept` choices are undominated; else only the plan. With `most_bytes`, the same of units no larger.
Complexity: O(layers · layers of a unit · kept). Source: own, after iBatch both ways.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from planner.deadline import NEVER, Deadline
from planner.fsdp.problem import Mesh, Problem

__all__ = ["Partition", "best_units"]


class Partition(NamedTuple):
    """Units, what they take, and whether no others take less."""

    ranges: tuple[tuple[int, int], ...]
    iteration_ns: int
    proven: bool


class _Label(NamedTuple):
    gathered: int
    scattered: int
    summed: int  # the last end, in the backward pass
    units: Any  # where the first one ends, and those behind it


def best_units(
    problem: Problem,
    mesh: Mesh,
    *,
    most_bytes: int | None = None,
    starts: Sequence[int] | None = None,
    fits: Callable[[int, int], bool] | None = None,
    kept: int = 64,
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
    deadline : Deadline
        When to give up.
    """
    count, sums = problem.layers, problem.prefixes
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]
    forward, backward = sums["forward_ns"], sums["backward_ns"]
    shares = [0]
    for share in problem.shares(mesh.shards):
        shares.append(shares[-1] + share)
    if starts is None:
        starts = [layer for layer in range(count) if problem.cuts[layer]]
    starts = [*starts, count]
    labels: dict[int, list[_Label]] = {count: [_Label(0, 0, 0, None)]}
    apart = problem.apart(mesh)
    proven = True
    for place in range(len(starts) - 2, -1, -1):
        deadline.check()
        start = starts[place]
        candidates = []
        last = len(starts) - 1
        if most_bytes is not None:
            farthest = bisect_right(sizes, sizes[start] + most_bytes) - 1
            last = max(place + 1, bisect_right(starts, farthest) - 1)
        computed = backward[count] - backward[start]
        for stop in starts[place + 1 : last + 1]:
            if fits is not None and not fits(start, stop):
                continue
            gather = mesh.gather_ns(sizes[stop] - sizes[start])
            reduce = mesh.reduce_ns(gradients[stop] - gradients[start])
            added = mesh.sum_ns(shares[stop] - shares[start])
            if not apart:
                reduce, added = reduce + added, 0
            for gathered, before, summed, units in labels[stop]:
                scattered = max(before, computed) + reduce
                candidates.append(
                    _Label(
                        gather + max(forward[count] - forward[start], gathered),
                        scattered,
                        max(scattered, summed) + added,
                        (stop, units),
                    )
                )
        labels[start] = _undominated(candidates)
        proven &= len(labels[start]) <= kept
        labels[start] = labels[start][:kept]
    best = min(labels[0], key=lambda label: label.gathered + label.summed)
    ranges, start, trail = [], 0, best.units
    while trail is not None:
        stop, trail = trail
        ranges.append((start, stop))
        start = stop
    return Partition(tuple(ranges), best.gathered + best.summed, proven)


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
