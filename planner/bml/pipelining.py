"""In how many parts to send each piece.

Problem. Steps of a plan around failures load links unevenly: with one round each of them waits for
its own busiest NIC. Cut into R parts that follow each other, all steps are under way at once, on
different parts, and a step waits for the busiest NIC of all of them together; but there are R - 1
more steps, each with its start-up cost. Which R is best?

Method. Let P_h be the time of steps 0 … h together, 2D steps in all. For R >= 2D, were sizes
divisible, the time is ``(R + 2D - 1)·α + (2·Σ_{h<2D-1} P_h + (R - 2D + 1)·P_{2D-1})/R``: the
pipeline fills, runs full, and empties in the same way. Its least R is a square root. That R, its
neighbours that cut pieces into parts of a whole number of elements, and 1 are priced exactly, and
the best one taken.

Guarantee. Never worse than one round. None of optimality: other R are not tried.

Complexity. One look at the loads of each step, and at most five prices.

Source. Pipelined collectives on trees; for one tree of equal hops this is the known square root.
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
"""Without a start-up cost more parts are always better, by less and less."""

MAX_HELD = 2**23
"""Steps times NICs up to which the loads of all steps are held at once, in 128 MiB each time."""


def with_best_rounds(problem: Problem, plan: PlanT, deadline: Deadline = NEVER) -> PlanT:
    """Return the plan with the number of rounds that takes least, of those there is time for.

    One round, where the loads of all steps are more than fit in memory together.
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
    """Return numbers of rounds above 1 that may be the best."""
    elements = max(problem.chunks) // problem.element_bytes
    in_use = plan.threads * plan.pieces - len(plan.left_out)
    hops, each = 2 * plan.steps, elements // max(in_use, 1)
    most = min(MAX_ROUNDS, each)
    if not hops or most < max(hops, 2):
        return set()
    best = min(max(_unrounded(problem, plan, deadline), hops), most)
    # Parts are whole elements: of as many rounds as give parts of one size, the fewest.
    sizes = range(max(1, -(-each // best) - 1), -(-each // best) + 2)
    return {best, *(rounds for size in sizes if 2 <= (rounds := -(-each // size)) <= most)}


def _unrounded(problem: Problem, plan: Schedule | TreePlan, deadline: Deadline) -> int:
    """Return the best number of rounds were sizes divisible."""
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
