"""Smaller pieces for servers that have lost NICs, to balance the load of NICs.

Problem: a server that has lost NICs sends every piece once, and passes on pieces that it
aggregates. With three levels or more its remaining NICs become the busiest. How small should these
pieces be?

Method: golden-section search over one common weight of these pieces; why the load is quasi-convex:
docs/bml.md, "Why smaller pieces are found by a line search".

Guarantee: never a larger load than with equal pieces. With two levels nothing can be gained.
Complexity: twice the time of summing loads, and O(k·N) for each weight. Source: own.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from planner.bml.damage import Damage
from planner.bml.evaluation import both_ways
from planner.bml.schedule import FULL_WEIGHT, Schedule, slice_of

__all__ = ["balanced"]


def balanced(schedule: Schedule, damage: Damage) -> Schedule:
    """Return the schedule with the piece weight that minimises the load of the busiest NIC."""
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
    least = 0 if covered < in_use else 1  # some piece must have a weight
    # In units of weight no piece is rounded, so loads are linear in the weight.
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
    """Return the minimiser of a quasi-convex function of integers, the larger one on ties."""
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
