"""Units for little memory: the cheapest transfers of units that fit without anything ahead.

Problem: where memory leaves little room to gather ahead, transfers hide behind little. Which units
make the least of them, each gathered twice and scattered once?

Method: if nothing but the last unit's parameters is kept after the forward pass, what is in memory
before a unit is known: the activations so far. So which units fit tells each by itself, but for the
gradients of the next one, whose buffer it meets. Sums over copies with links of their own count
where they take longer than all else. Going through the layers from the last to the
first, of all units from one layer on the cheapest are kept, for each size of the first one's
gradients. With `ahead`, each has room for as much again as its parameters, so many times.

Guarantee: the least sum of transfers of all units that fit so, of up to `EVERY` of the smallest
ones, or numbers of them that are some eighth apart.
Complexity: O(layers · numbers · log undominated). Source: own.
"""

from bisect import bisect_left
from typing import Any, NamedTuple

from planner.fsdp.least import finest
from planner.fsdp.problem import Problem
from planner.solving.pareto import staircase

__all__ = ["cheapest_units"]

EVERY, MOST = 32, 256
"""Up to so many of the smallest units in one, all numbers are tried; and how many at most."""


def _numbers() -> tuple[int, ...]:
    numbers = [1]
    while numbers[-1] < MOST:
        numbers.append(numbers[-1] + (1 if numbers[-1] < EVERY else numbers[-1] // 8))
    return tuple(numbers)


_NUMBERS = _numbers()


class _Label(NamedTuple):
    cost: int
    made: int
    units: Any  # where the first one ends, and those behind it


def cheapest_units(
    problem: Problem, mesh: int, *, recompute: bool = False, ahead: int = 0
) -> tuple[tuple[int, int], ...] | None:
    """Return the units, or None if none fit so.

    Parameters
    ----------
    problem : Problem
        With a memory limit.
    mesh : int
        Place of the mesh.
    recompute : bool
        Whether all units are recomputed.
    ahead : int
        How many times its parameters there is room for beside each unit.
    """
    assert problem.memory_bytes is not None
    over = problem.meshes[mesh]
    apart = problem.apart(over)
    room = problem.memory_bytes - problem.state_bytes(over.shards)
    sums, shares = problem.prefixes, problem.share_sums(over.shards)
    sizes, gradients = sums["parameter_bytes"], sums["gradients"]
    kept = sums["checkpoints" if recompute else "activations"]
    starts = [*(start for start, _ in finest(problem)), problem.layers]
    labels: dict[int, list[_Label]] = {problem.layers: [_Label(0, 0, None)]}
    for place in range(len(starts) - 2, -1, -1):
        start = starts[place]
        left = room - kept[start]
        tried: list[_Label] = []
        again, reached = 0, start
        for number in _NUMBERS:
            if place + number >= len(starts):
                break
            stop = starts[place + number]
            size, made = sizes[stop] - sizes[start], gradients[stop] - gradients[start]
            own, later = shares[stop] - shares[start], shares[-1] - shares[stop]
            remembered, more = kept[stop] - kept[start], ahead * size
            if max(2 * size, size + remembered, 2 * made + later) + more > left:
                break  # and so does every longer one
            if recompute:
                again = max(again, *problem.activations[reached:stop])
            reached = stop
            copied = 2 * size if stop < problem.layers else 0
            beside = left - remembered - later - more - max(copied, again + size + made)
            costs = 2 * over.gather_ns(size) + over.reduce_ns(made)
            costs = max(costs, over.sum_ns(own)) if apart else costs + over.sum_ns(own)
            behind = labels[stop]  # the cheapest first, and the one with the most gradients
            cheapest = bisect_left(behind, -beside, key=lambda label: -label.made)
            if cheapest < len(behind):
                label = behind[cheapest]
                tried.append(_Label(costs + label.cost, made, (stop, label.units)))
        labels[start] = staircase(tried, lambda label: label[:2], lambda label: label.made)
    if not labels[0]:
        return None
    ranges: list[tuple[int, int]] = []
    start, trail = 0, min(labels[0], key=lambda label: label.cost).units
    while trail is not None:
        stop, trail = trail
        ranges.append((start, stop))
        start = stop
    return tuple(ranges)
