"""The exact makespan for any communication cost, by dynamic programming.

Problem: as in `makespan`, with communication times c(bytes) that need not add up: a measured table,
or a rate whose products are rounded up to whole nanoseconds.

Method: let H[a] be the shortest time in which layers a … L-1 can be sent and computed, starting
with an idle link. The first batch a … b-1 takes c(a, b); after it the rest needs H[b], and all
computation from a on is still to come:

    H[a] = min_b c(a, b) + max(H[b], PC[L] - PC[a]).

Guarantee: optimal for every cost function. At a time limit the plan is the one of the longest
batches and the bound the relaxation.

Complexity: O(L²) time in NumPy rows, O(L) memory. Source: own; the time reversal of the recurrence
F[j] = min_{i<j} max(F[i], r_j) + c(S_j - S_i) for pushing gradients.
"""

import numpy as np

from planner.deadline import Deadline
from planner.ibatch.bounds import relaxation
from planner.ibatch.problem import Outcome, Problem

__all__ = ["solve_general"]


def solve_general(problem: Problem, deadline: Deadline) -> Outcome:
    """Minimise the makespan of any problem whose layers respect the cap."""
    count, computed = problem.layers, problem.compute_prefix
    finish = np.zeros(count + 1, dtype=np.int64)
    choice = np.zeros(count + 1, dtype=np.int64)
    for start in range(count - 1, -1, -1):
        if deadline.passed:
            return Outcome(_longest_batches(problem), relaxation(problem), timed_out=True)
        reach = problem.reach(start)
        rest = np.maximum(finish[start + 1 : reach + 1], computed[count] - computed[start])
        times = problem.transfer_times(start, reach) + rest
        best = int(np.argmin(times))
        finish[start], choice[start] = times[best], start + 1 + best
    boundaries = [0]
    while boundaries[-1] < count:
        boundaries.append(int(choice[boundaries[-1]]))
    return Outcome(boundaries, int(finish[0]))


def _longest_batches(problem: Problem) -> list[int]:
    boundaries = [0]
    while boundaries[-1] < problem.layers:
        boundaries.append(problem.reach(boundaries[-1]))
    return boundaries
