"""Exact makespan for transfer times that add up: parametric search with greedy sweeps.

Problem: boundaries 0 = l_0 < … < l_B = L that minimise ``max_k (k·Ts + PT[l_k] + PC[L] -
PC[l_{k-1}])``.
Method: bisection of a target M. A sweep from the left makes each batch as long as M and the cap
allow; M is feasible exactly if the sweep reaches L. Both ends of the interval jump (proof:
docs/ibatch.md, "Why the exact method is fast").
Guarantee: optimal with the fewest batches. At a time limit, a plan and a proven lower bound.
Complexity: O(B log L) per sweep, O(log range) sweeps; O(L) memory.
Source: the model is iBatch's without Eq. 5; the method is own, as in parametric search for
bottleneck partitions.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from planner.families.ibatch.bounds import relaxation
from planner.families.ibatch.evaluation import boundaries_of, evaluate, lasts_under
from planner.families.ibatch.problem import Plan, Problem
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.tie_break import NOMINAL, Limit, most_robust


def solve_additive(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the makespan of a problem that has a `transfer_prefix`."""
    arrival = problem.transfer_prefix
    assert arrival is not None
    # An upper bound on every plan's makespan: with it batches are as long as the cap allows.
    startups = (problem.layers + 1) * problem.transfer_startup_ns
    ample = arrival[-1] + startups + problem.compute_prefix[-1]
    boundaries, upper = sweep(problem, (), Limit(NOMINAL, ample))
    assert boundaries is not None
    best, lower = boundaries, relaxation(problem)
    while lower < upper:
        if deadline.passed:
            return Outcome(problem.plan(best), lower, timed_out=True)
        target = (lower + upper) // 2
        boundaries, value = sweep(problem, (), Limit(NOMINAL, target))
        if boundaries is None:
            lower = value
        else:
            best, upper = boundaries, value
    return Outcome(problem.plan(best), upper)


def sweep(problem: Problem, limits: Sequence[Limit], last: Limit) -> tuple[list[int] | None, int]:
    """Return boundaries that meet all limits, and their makespan under the last limit's factors.

    `limits` must be satisfiable together. If `last` is not, return None and the least value of the
    last limit that would change a step; no smaller value is feasible. Needs a `transfer_prefix`.
    """
    sent, computed = problem.transfer_prefix, problem.compute_prefix
    assert sent is not None
    startup, count = problem.transfer_startup_ns, problem.layers
    (transfer, compute), most = last
    # The last limit's factors go into its tables, so that a step adds and compares only.
    arrival = sent if transfer == 1 else [transfer * time for time in sent]
    done = computed if compute == 1 else [compute * time for time in computed]
    total = done[count]
    slack, behind = most - total, transfer * startup
    capped = problem.max_batch_bytes is not None
    boundaries = [0]
    append = boundaries.append
    at, startups = 0, 0
    latest, step = -total, arrival[count] + (count + 1) * behind
    while at < count:
        startups += behind
        # lead + arrival[stop] + total is the makespan that the batch at … stop-1 implies.
        lead = startups - done[at]
        stop = bisect_right(arrival, slack - lead, at + 1) - 1
        reach = problem.reach(at) if capped else count
        for (slower, longer), end in limits:
            by = (end - longer * (computed[count] - computed[at])) // slower
            reach = bisect_right(sent, by - startup * len(boundaries), at + 1, reach + 1) - 1
        if stop >= reach:
            stop = reach
        elif (then := lead + arrival[stop + 1]) < step:
            step = then
        if stop <= at:
            return None, total + step
        if (then := lead + arrival[stop]) > latest:
            latest = then
        append(stop)
        at = stop
    return boundaries, total + latest


# ---
# Tie-breaking: among plans of least makespan, the one least sensitive to delays.
#
# Problem: find the least S such that a plan has makespan at most M* and, with transfers t times and
# computation c times as long, at most S (`planner.solving.tie_break`). Method: a batch that starts
# with layer a and arrives at E meets S if ``t·E + c·R_a <= S``, where R_a is the computation from
# layer a on. So all limits together are one latest arrival per first layer, and a sweep makes each
# batch as long as they allow. An infeasible S is raised to the least value that changes a step.
# Proof: docs/ibatch.md, "Why the tie-break is exact". Guarantee: exact for transfer times that add
# up; else never more sensitive than the plan given. Complexity: a sweep per target; a bisection of
# targets per delay in `DELAYS`. Source: own.


def robust(problem: Problem, plan: Plan, deadline: Deadline) -> Plan:
    """Return a plan of equal makespan that is no more sensitive to delays."""
    value = evaluate(problem, plan).makespan_ns
    attempt = partial(_swept if problem.transfer_prefix is None else sweep, problem)
    lasts = partial(lasts_under, problem)
    return problem.plan(most_robust(boundaries_of(plan), value, lasts, attempt, deadline))


def _swept(problem: Problem, limits: Sequence[Limit], last: Limit) -> tuple[list[int] | None, int]:
    """Try to meet all limits with batches that each reach as far as possible.

    Costs need not add up here, so the value returned for an infeasible limit is only a guess.
    """
    computed, count = problem.compute_prefix, problem.layers
    boundaries, sent, needed = [0], 0, lasts_under(problem, (0, count), last.delay)
    while boundaries[-1] < count:
        start = boundaries[-1]
        rest = computed[-1] - computed[start]
        latest = min((most - c * rest) // t for (t, c), most in (*limits, last)) - sent
        ends = range(start + 1, problem.reach(start) + 1)
        place = bisect_right(ends, latest, key=partial(problem.transfer_time, start))
        if place < len(ends):
            then = sent + problem.transfer_time(start, ends[place])
            needed = min(needed, last.delay.transfer * then + last.delay.compute * rest)
        if not place or problem.transfer_time(start, ends[place - 1]) > latest:
            return None, needed
        boundaries.append(ends[place - 1])
        sent += problem.transfer_time(start, boundaries[-1])
    return boundaries, lasts_under(problem, boundaries, last.delay)
