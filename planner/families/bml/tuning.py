"""Number of pipeline rounds: into how many parts to cut each piece.

Problem: with failures, the steps of a plan load links unevenly, and with one round each step waits
for its own busiest NIC. With R rounds all steps run at once on different parts and wait for the
busiest NIC overall, but R - 1 more steps pay a start-up.

Method: closed-form optimum for divisible sizes, then exact prices of it, its neighbours and 1; see
docs/bml.md, "Why the number of rounds is a square root".

Guarantee: never worse than one round; not optimal, other R are not tried.
Complexity: the loads of each step once, and at most five prices. Source: pipelined collectives on
trees, where one tree of equal hops gives the same square root.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import isqrt
from typing import TypeVar

from planner.families.bml.damage import Damage
from planner.families.bml.evaluation import both_ways
from planner.families.bml.pricing import Loads, loads, time_ns
from planner.families.bml.problem import Problem
from planner.families.bml.schedule import FULL_WEIGHT, Schedule, slice_of
from planner.families.bml.trees import Plan, TreePlan
from planner.solving.deadline import NEVER, Deadline, TimeUpError

PlanT = TypeVar("PlanT", Schedule, TreePlan)

MAX_ROUNDS = 1024
"""Limit without start-up costs, where more parts always help, but less and less."""

MAX_HELD = 2**23
"""Steps times NICs up to which the loads of all steps are kept at once, in 128 MiB each time."""


def with_best_rounds(problem: Problem, plan: PlanT, deadline: Deadline = NEVER) -> PlanT:
    """Return the plan with the fastest number of rounds among those priced in time.

    One round if the loads of all steps do not fit in memory together.
    """
    if plan.steps * plan.bcube.nics > MAX_HELD:
        return plan
    best = plan
    with suppress(TimeUpError):
        deadline.check()
        worth = sorted(_worth_trying(problem, plan, deadline))
        least = time_ns(problem, plan, deadline) if worth else 0
        for rounds in worth:
            candidate = replace(plan, rounds=rounds)
            time = time_ns(problem, candidate, deadline)
            if time < least:
                best, least = candidate, time
    return best


def _worth_trying(problem: Problem, plan: Plan, deadline: Deadline) -> set[int]:
    """Return the candidate numbers of rounds above 1."""
    elements = max(problem.chunks) // problem.element_bytes
    in_use = plan.threads * plan.pieces - len(plan.left_out)
    hops, each = 2 * plan.steps, elements // max(in_use, 1)
    most = min(MAX_ROUNDS, each)
    if not hops or most < max(hops, 2):
        return set()
    best = min(max(_unrounded(problem, plan, deadline), hops), most)
    # Parts are whole elements: among the numbers of rounds that give the same part size, take the
    # fewest.
    sizes = range(max(1, -(-each // best) - 1), -(-each // best) + 2)
    return {best, *(rounds for size in sizes if 2 <= (rounds := -(-each // size)) <= most)}


def _unrounded(problem: Problem, plan: Plan, deadline: Deadline) -> int:
    """Return the optimal number of rounds if sizes were divisible."""
    layout = plan.layout(problem.size_bytes // problem.element_bytes, problem.element_bytes)
    up = list(loads(plan, layout, deadline))
    down = [Loads(load.received, load.sent) for load in reversed(up)]
    sent = accumulate(load.sent for load in up + down)
    received = accumulate(load.received for load in up + down)
    times = [
        problem.network.time(max(int(out.max()), int(into.max())))
        for out, into in zip(sent, received, strict=True)
    ]
    excess = 2 * sum(times[:-1]) - (2 * plan.steps - 1) * times[-1]
    starts = problem.network.startup_ns * sum(size > 0 for size in problem.chunks)
    return isqrt(int(max(excess, Fraction(0)) / starts)) if starts else MAX_ROUNDS


# ---
# Smaller pieces for servers that have lost NICs, to balance the load of NICs.
#
# Problem: a server that has lost NICs sends every piece once, and passes on pieces that it
# aggregates. With three levels or more its remaining NICs become the busiest. How small should
# these pieces be?
#
# Method: golden-section search over one common weight of these pieces; why the load is
# quasi-convex: docs/bml.md, "Why smaller pieces are found by a line search".
#
# Guarantee: never a larger load than with equal pieces. With two levels nothing can be gained.
# Complexity: twice the time of summing loads, and O(k·N) for each weight. Source: own.


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
    at = cache(value)
    while high - low > 2:
        left = low + (high - low) * 3 // 8
        right = max(left + 1, low + (high - low) * 5 // 8)
        if at(left) < at(right):
            high = right
        else:
            low = left
    return min(range(low, high + 1), key=lambda place: (at(place), -place))
