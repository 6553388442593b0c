"""Smaller pieces where servers with fewer NICs aggregate.

Problem. A server a that has lost NICs sends every piece once on the NICs it has left, and passes
on what it aggregates for others: pieces that agree with a in their first digit. With three levels
or more these make its NICs the busiest of all. How small should they be?

Method. In thread t they are one slice, that of step 0. All such slices get the same weight y
relative to other pieces. What a NIC carries is linear in y, before it is divided by the sum of all
weights, which is linear too; so the load of the busiest is quasi-convex, and a golden-section
search over the weights 0 … 64 of 64 finds its minimum up to plateaus.

Guarantee. Never a larger load than with equal pieces. With two levels there is nothing to gain:
such a server aggregates nothing anyway.

Complexity. Twice what it takes to add up loads, as they are linear, and O(k·N) for each weight.

Source. Ours.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from planner.bml.damage import Damage
from planner.bml.evaluation import both_ways
from planner.bml.schedule import FULL_WEIGHT, Schedule, slice_of

__all__ = ["balanced"]


def balanced(schedule: Schedule, damage: Damage) -> Schedule:
    """Return the schedule with the weight of these slices that loads its busiest NIC least."""
    bcube = schedule.bcube
    slices = {
        (thread * bcube.servers + offset, thread * bcube.servers + offset + length)
        for server in damage.degraded
        for thread in range(bcube.k)
        for offset, length in [slice_of(bcube, thread, 0, server)]
    }
    if bcube.k < 3 or not slices:
        return schedule
    lighter = replace(schedule, light=tuple(sorted(slices)))
    in_use = schedule.threads * schedule.pieces - len(schedule.left_out)
    covered = sum(stop - first for first, stop in slices)
    least = 0 if covered < in_use else 1  # something must have a weight
    # In units of weight no piece is rounded: loads are linear in the weight.
    low, high = (
        both_ways(candidate, candidate.layout(candidate.total_weight, 1), damage.deadline)
        for candidate in (replace(lighter, light_weight=weight) for weight in (least, FULL_WEIGHT))
    )

    def load(weight: int) -> Fraction:
        ahead, behind = weight - least, FULL_WEIGHT - weight
        busiest = int((low * behind + high * ahead).max())
        total = replace(lighter, light_weight=weight).total_weight
        return Fraction(busiest, (FULL_WEIGHT - least) * total)

    best = _minimum(load, least, FULL_WEIGHT)
    return replace(lighter, light_weight=best) if best < FULL_WEIGHT else schedule


def _minimum(value: Callable[[int], Fraction], low: int, high: int) -> int:
    """Return where a quasi-convex function of integers is least, ties to the larger one."""
    known = {high: value(high)}

    def at(place: int) -> Fraction:
        if place not in known:
            known[place] = value(place)
        return known[place]

    while high - low > 2:
        left = low + (high - low) * 3 // 8
        right = max(left + 1, low + (high - low) * 5 // 8)
        if at(left) < at(right):
            high = right
        else:
            low = left
    for place in range(low, high + 1):
        at(place)
    return min(known, key=lambda place: (known[place], -place))
