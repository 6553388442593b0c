"""Of all plans with the least objective the most robust one, exactly (see `planner.robustness`).

Problem: a makespan at most M* and, under a strain (t, c), at most S, says of every batch when it
has to have arrived: if it starts with layer a and arrives at E, then ``E <= M* - R_a`` and
``t·E + c·R_a <= S``, with R_a the computation from layer a on. Which S can be met?

Method: several limits are one latest arrival for each first layer, and nothing that comes later
gains from a batch that arrives later. So the least arrivals decide, and the exact methods carry
over: the greedy sweep where transfer times add up, reaching as far as all limits allow; the least
arrival at each boundary for any cost; the least arrival of each last batch under Eq. 4, where
Eq. 4 is the makespan. An S that cannot be met is raised to the least that changes any step.

Guarantee: no plan with the same objective is more robust. Complexity: that of the exact method a
target, and a bisection of targets a strain. Source: own.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from planner.deadline import Deadline
from planner.ibatch.arrivals import Arrivals
from planner.ibatch.evaluation import evaluate, objective_ns
from planner.ibatch.makespan import sweep
from planner.ibatch.problem import Plan, Problem
from planner.ibatch.strains import boundaries_of, lasts_under
from planner.robustness import Limit, most_robust
from planner.solving.methods import Outcome

__all__ = ["robust"]


def robust(problem: Problem, outcome: Outcome[Plan], deadline: Deadline) -> Outcome[Plan]:
    """Return what an exact method found with the most robust plan in the place of its plan."""
    if outcome.plan is None or outcome.timed_out:
        return outcome
    best = boundaries_of(outcome.plan)
    value = objective_ns(problem, evaluate(problem, outcome.plan))
    lasts = partial(lasts_under, problem)
    if problem.objective == "makespan" and problem.transfer_prefix is not None:
        best, late = most_robust(best, value, lasts, partial(sweep, problem), deadline)
        return replace(outcome, plan=problem.plan(best), timed_out=late)
    if problem.objective == "makespan":
        from planner.ibatch.dynamic import within

        # Sweeps, exact where times add up, mostly find what then only needs the proof.
        best, _ = most_robust(best, value, lasts, partial(_swept, problem), deadline)
    else:
        from planner.ibatch.paper_model import within
    attempt = partial(_attempt, problem, within, deadline)
    best, late = most_robust(best, value, lasts, attempt, deadline)
    return replace(outcome, plan=problem.plan(best), timed_out=late)


def _swept(problem: Problem, limits: Sequence[Limit], last: Limit) -> tuple[list[int] | None, int]:
    """Try to keep all limits with batches each of which reaches as far as they allow.

    What it says cannot be kept is a guess, as the costs of batches need not add up.
    """
    computed, count = problem.compute_prefix, problem.layers
    boundaries, sent, needed = [0], 0, lasts_under(problem, (0, count), last.strain)
    while boundaries[-1] < count:
        start = boundaries[-1]
        rest = computed[-1] - computed[start]
        latest = min((most - c * rest) // t for (t, c), most in (*limits, last)) - sent
        ends = range(start + 1, problem.reach(start) + 1)
        place = bisect_right(ends, latest, key=partial(problem.transfer_time, start))
        if place < len(ends):
            then = sent + problem.transfer_time(start, ends[place])
            needed = min(needed, last.strain.transfer * then + last.strain.compute * rest)
        if not place or problem.transfer_time(start, ends[place - 1]) > latest:
            return None, needed
        boundaries.append(ends[place - 1])
        sent += problem.transfer_time(start, boundaries[-1])
    return boundaries, lasts_under(problem, boundaries, last.strain)


def _attempt(
    problem: Problem,
    within: Callable[[Problem, Arrivals, Deadline], list[int] | None],
    deadline: Deadline,
    limits: Sequence[Limit],
    last: Limit,
) -> tuple[list[int] | None, int]:
    """Return boundaries that keep all limits, or what the last one would have to be."""
    arrivals = Arrivals(problem, limits, last)
    boundaries = within(problem, arrivals, deadline)
    if boundaries is not None:
        return boundaries, lasts_under(problem, boundaries, last.strain)
    assert arrivals.needed_ns is not None  # the other limits can be kept
    return None, arrivals.needed_ns
