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
interval is a proven bound at all times, so a time limit leaves a plan and its gap.

Complexity: O(B log L) a sweep, O(log range) sweeps; memory O(L).

Source: the model is iBatch's, without Eq. 5; the method is ours, in the manner of parametric search
for bottleneck partitions.
"""

from bisect import bisect_right

from planner.deadline import Deadline
from planner.ibatch.bounds import relaxation
from planner.ibatch.problem import Plan, Problem
from planner.methods import Outcome

__all__ = ["solve_additive"]


def solve_additive(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the makespan of a problem whose `transfer_prefix` is known."""
    # An infinite target makes every batch as long as the cap allows.
    boundaries, upper = _sweep(problem, None)
    assert boundaries is not None
    best, lower = boundaries, relaxation(problem)
    while lower < upper:
        if deadline.passed:
            return Outcome(problem.plan(best), lower, timed_out=True)
        target = (lower + upper) // 2
        boundaries, value = _sweep(problem, target)
        if boundaries is None:
            lower = value
        else:
            best, upper = boundaries, value
    return Outcome(problem.plan(best), upper)


def _sweep(problem: Problem, target: int | None) -> tuple[list[int] | None, int]:
    """Try to finish by `target` (None: any time).

    Returns
    -------
    boundaries, makespan
        If it can be done; the makespan is that of the boundaries.
    None, next_target
        Otherwise; no target below `next_target` can be met either.
    """
    arrival = problem.transfer_prefix
    assert arrival is not None
    computed = problem.compute_prefix
    startup, count = problem.transfer_startup_ns, problem.layers
    total = computed[count]
    limit = arrival[count] + (count + 1) * startup + total if target is None else target
    capped = problem.max_batch_bytes is not None
    boundaries = [0]
    append = boundaries.append
    at, startups = 0, 0
    makespan, step = 0, arrival[count] + (count + 1) * startup + total
    while at < count:
        startups += startup
        # What `limit` must hold besides the transfers up to the end of this batch.
        fixed = startups + total - computed[at]
        stop = bisect_right(arrival, limit - fixed, at + 1) - 1
        if capped:
            reach = problem.reach(at)
            if stop >= reach:
                stop = reach
            elif stop < count:
                step = min(step, fixed + arrival[stop + 1])
        elif stop < count:
            step = min(step, fixed + arrival[stop + 1])
        if stop == at:
            return None, step
        makespan = max(makespan, fixed + arrival[stop])
        append(stop)
        at = stop
    return boundaries, makespan
