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

from planner.families.ibatch.bounds import relaxation
from planner.families.ibatch.problem import Plan, Problem
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome


def solve_additive(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the makespan of a problem that has a `transfer_prefix`."""
    arrival = problem.transfer_prefix
    assert arrival is not None
    # An upper bound on every plan's makespan: with it batches are as long as the cap allows.
    startups = (problem.layers + 1) * problem.transfer_startup_ns
    ample = arrival[-1] + startups + problem.compute_prefix[-1]
    boundaries, upper = sweep(problem, ample)
    assert boundaries is not None
    best, lower = boundaries, relaxation(problem)
    while lower < upper:
        if deadline.passed:
            return Outcome(problem.plan(best), lower, timed_out=True)
        target = (lower + upper) // 2
        boundaries, value = sweep(problem, target)
        if boundaries is None:
            lower = value
        else:
            best, upper = boundaries, value
    return Outcome(problem.plan(best), upper)


def sweep(problem: Problem, most_ns: int) -> tuple[list[int] | None, int]:
    """Return boundaries of the fewest batches within a makespan, and their makespan.

    If there are none, return None and the least makespan that would change a step; no smaller value
    is feasible. Needs a `transfer_prefix`.
    """
    arrival, computed = problem.transfer_prefix, problem.compute_prefix
    assert arrival is not None
    startup, count = problem.transfer_startup_ns, problem.layers
    total = computed[count]
    slack = most_ns - total
    capped = problem.max_batch_bytes is not None
    boundaries = [0]
    append = boundaries.append
    at, startups = 0, 0
    latest, step = -total, arrival[count] + (count + 1) * startup
    while at < count:
        startups += startup
        # With the time of all bytes up to a batch's last and `total`, when the plan ends for it.
        lead = startups - computed[at]
        stop = bisect_right(arrival, slack - lead, at + 1) - 1
        reach = problem.reach(at) if capped else count
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
