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

from planner.families.ibatch.bounds import relaxation
from planner.families.ibatch.problem import Plan, Problem
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.solving.robustness import NOMINAL, Limit


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
        # With the time of all bytes up to a batch's last and `total`, when the plan ends for it.
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
