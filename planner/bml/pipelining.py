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

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import isqrt
from typing import TypeVar

from planner.bml.loads import Loads, loads
from planner.bml.pricing import time_ns
from planner.bml.problem import Problem
from planner.bml.schedule import Schedule
from planner.bml.trees import TreePlan
from planner.deadline import NEVER, Deadline, TimeUpError

__all__ = ["MAX_ROUNDS", "with_best_rounds"]

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


def _worth_trying(problem: Problem, plan: Schedule | TreePlan, deadline: Deadline) -> set[int]:
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


def _unrounded(problem: Problem, plan: Schedule | TreePlan, deadline: Deadline) -> int:
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
