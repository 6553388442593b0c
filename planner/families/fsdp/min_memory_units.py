"""Units for little memory (`tight`): least sum of transfers, with nothing gathered ahead.

Problem: with little memory transfers hide behind little computation. Which units that fit minimise
the sum of transfers, each unit gathered twice and scattered once?
Method: dynamic programming from the last layer to the first; labels are the cost and the gradients
of the first unit. Why a unit tells by itself whether it fits: docs/fsdp.md, "How the best units are
found".
Guarantee: least sum for units of up to `EVERY` smallest units; of more, lengths about an eighth
apart are tried.
Complexity: O(layers · lengths · log labels). Source: own.
"""

from bisect import bisect_left
from typing import Any, NamedTuple

from planner.families.fsdp.min_memory import finest
from planner.families.fsdp.problem import Problem
from planner.solving.pareto import staircase

# Units of up to EVERY smallest units: every length is tried; the longest has about MOST.
EVERY, MOST = 32, 256


def _numbers() -> tuple[int, ...]:
    numbers = [1]
    while numbers[-1] < MOST:
        numbers.append(numbers[-1] + (1 if numbers[-1] < EVERY else numbers[-1] // 8))
    return tuple(numbers)


_NUMBERS = _numbers()


class _Label(NamedTuple):
    cost: int
    made: int
    units: Any  # linked list: (end of the first unit, units after it)


def cheapest_units(
    problem: Problem, mesh: int, *, recompute: bool = False, ahead: int = 0
) -> tuple[tuple[int, int], ...] | None:
    """Return the units, each with room for `ahead` times its parameters; None if none fit."""
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
                break  # longer units do not fit either
            if recompute:
                again = max(again, *problem.activations[reached:stop])
            reached = stop
            copied = 2 * size if stop < problem.layers else 0
            beside = left - remembered - later - more - max(copied, again + size + made)
            costs = 2 * over.gather_ns(size) + over.reduce_ns(made)
            costs = max(costs, over.sum_ns(own)) if apart else costs + over.sum_ns(own)
            behind = labels[stop]  # sorted by rising cost and falling gradients
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
