"""In how many parts to send each piece.

Problem. Steps of a plan around failures load links unevenly: with one round each of them waits for
its own busiest NIC. Cut into R parts that follow each other, all steps are under way at once, on
different parts, and a step waits for the busiest NIC of all of them together; but there are R - 1
more steps, each with its start-up cost. Which R is best?

Method. Let P_h be the time of steps 0 … h together, 2D steps in all. For R >= 2D, were sizes
divisible, the time is ``(R + 2D - 1)·α + (2·Σ_{h<2D-1} P_h + (R - 2D + 1)·P_{2D-1})/R``: the
pipeline fills, runs full, and empties in the same way. Its least R is a square root. That R and 1
are priced exactly, and the better one taken.

Guarantee. None of optimality: R between is not tried, and rounding may favour a neighbour.

Complexity. One look at the loads of each step, and two prices.

Source. Pipelined collectives on trees; for one tree of equal hops this is the known square root.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import isqrt
from typing import TypeVar

from planner.bml.evaluation import evaluate
from planner.bml.loads import Loads, loads
from planner.bml.problem import Problem
from planner.bml.schedule import Schedule
from planner.bml.trees import TreePlan

__all__ = ["MAX_ROUNDS", "with_best_rounds"]

PlanT = TypeVar("PlanT", Schedule, TreePlan)

MAX_ROUNDS = 1024
"""Without a start-up cost more parts are always better, by less and less."""


def with_best_rounds(problem: Problem, plan: PlanT) -> PlanT:
    """Return the plan with the number of rounds that takes least time."""
    in_use = plan.threads * plan.pieces - len(plan.left_out)
    most = min(MAX_ROUNDS, max(problem.chunks) // problem.element_bytes // max(in_use, 1))
    hops = 2 * plan.steps
    if not hops or most < hops:
        return plan
    up = list(
        loads(plan, plan.layout(problem.size // problem.element_bytes, problem.element_bytes))
    )
    down = [Loads(one.received, one.sent) for one in reversed(up)]
    sent = accumulate(one.sent for one in up + down)
    received = accumulate(one.received for one in up + down)
    times = [
        problem.network.time(max(int(out.max()), int(into.max())))
        for out, into in zip(sent, received, strict=True)
    ]
    excess = 2 * sum(times[:-1]) - (hops - 1) * times[-1]
    starts = problem.network.latency_ns * sum(size > 0 for size in problem.chunks)
    best = isqrt(int(max(excess, Fraction(0)) / starts)) if starts else most
    rounds = min(max(best, hops), most)
    return min((plan, replace(plan, rounds=rounds)), key=lambda one: evaluate(problem, one).time_ns)
