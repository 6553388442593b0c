"""The exact pipeline makespan, for transfer times that add up, in near-linear time.

Problem: boundaries 0 = l_0 < … < l_B = L that minimise
``max_k (k·Ts + PT[l_k] + PC[L] - PC[l_{k-1}])``, the time at which computation ends.

Method: for a target M, build batches from the left, each reaching the largest l_k with
``k·Ts + PT[l_k] + PC[L] - PC[l_{k-1}] <= M`` (and within the cap). Reaching farther never hurts:
the next batch's condition only loosens. So M is feasible exactly when this *sweep* reaches L, and
the smallest feasible M is the optimum. The search for it halves an integer interval, with jumps: a
feasible sweep lowers the upper end to the makespan its batches really have, an infeasible one
lifts the lower end to the smallest M that would change any of its steps.

Guarantee: optimal, and of the optimal plans one with the fewest batches. The lower end of the
interval is a proven bound at all times, so a time limit leaves a plan and its gap. Limits under
several strains are kept by the same sweep, as none of them gains from a shorter batch.

Complexity: O(B log L) a sweep, O(log range) sweeps; memory O(L).

Source: the model is iBatch's, without Eq. 5; the method is ours, in the manner of parametric search
for bottleneck partitions.
"""

from bisect import bisect_right
from collections.abc import Sequence

from planner.deadline import Deadline
from planner.ibatch.bounds import relaxation
from planner.ibatch.problem import Plan, Problem
from planner.robustness import NOMINAL, Limit
from planner.solving.methods import Outcome

__all__ = ["solve_additive", "sweep"]


def solve_additive(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the makespan of a problem whose `transfer_prefix` is known."""
    arrival = problem.transfer_prefix
    assert arrival is not None
    # A target that no plan exceeds makes every batch as long as the cap allows.
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
    """Try to keep a limit beside others that can be kept.

    Parameters
    ----------
    problem : Problem
        The problem, with a `transfer_prefix`.
    limits : sequence of Limit
        Limits that some plan keeps.
    last : Limit
        One more.

    Returns
    -------
    boundaries, makespan
        If all can be kept; the makespan is that of the boundaries under the last strain.
    None, next_limit
        Otherwise; no last limit below `next_limit` can be kept either.
    """
    arrival = problem.transfer_prefix
    assert arrival is not None
    computed = problem.compute_prefix
    startup, count = problem.transfer_startup_ns, problem.layers
    total = computed[count]
    (transfer, compute), most = last
    capped = problem.max_batch_bytes is not None
    boundaries = [0]
    append = boundaries.append
    at, startups = 0, 0
    makespan, step = 0, transfer * (arrival[count] + (count + 1) * startup) + compute * total
    while at < count:
        startups += startup
        rest = compute * (total - computed[at])
        # What the last limit must hold besides the transfers up to the end of this batch.
        stop = bisect_right(arrival, (most - rest) // transfer - startups, at + 1) - 1
        reach = problem.reach(at) if capped else count
        for (slower, longer), end in limits:
            latest = (end - longer * (total - computed[at])) // slower - startups
            reach = bisect_right(arrival, latest, at + 1, reach + 1) - 1
        if stop >= reach:
            stop = reach
        else:
            step = min(step, transfer * (startups + arrival[stop + 1]) + rest)
        if stop <= at:
            return None, step
        makespan = max(makespan, transfer * (startups + arrival[stop]) + rest)
        append(stop)
        at = stop
    return boundaries, makespan
