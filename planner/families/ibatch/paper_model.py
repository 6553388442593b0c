"""Exact Eq. 4 under Eq. 5, by dynamic programming over two boundaries.

Problem: minimise all communication plus the computation of the last batch (Eq. 4), such that
communication of each batch lasts at least as long as computation of the batch before (Eq. 5).
Method: V[b][c] is the least total communication of batches that end at c, the last being b … c-1.
Predecessors a … b-1 allowed by Eq. 5 form a suffix in a, so suffix minima give V[b][c] in one
look-up (docs/ibatch.md).
Guarantee: optimal for every cost function and cap, or proof that no plan exists.
Complexity: O(L² log L) time in NumPy rows, O(L²) memory; up to `MAX_LAYERS` layers.
Source: iBatch, Eqs. 1 to 5; the exact method is own.
"""

import numpy as np
from numpy.typing import NDArray

from planner.families.ibatch.bounds import nothing_covers, out_of_time
from planner.families.ibatch.problem import Plan, Problem
from planner.families.ibatch.robust import Arrivals
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome

MAX_LAYERS = 4096
"""With more layers the table V is too large (134 MB at the limit)."""

_NEVER = np.iinfo(np.int64).max


def solve_paper_model(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise Eq. 4 under Eq. 5; raise `NotApplicableError` beyond `MAX_LAYERS` layers."""
    count = problem.layers
    if count > MAX_LAYERS:
        raise NotApplicableError(
            "objective", f"eq4 can be solved exactly up to {MAX_LAYERS} layers, got {count}"
        )
    if deadline.remaining_s == 0:
        return out_of_time(problem)  # before allocating the table
    value = _least_communication(problem, deadline)
    if value is None:
        return out_of_time(problem)
    ends = value[:count, count]
    reachable = np.flatnonzero(ends < _NEVER)
    if not len(reachable):
        return Outcome(None, infeasibility=nothing_covers(problem))
    computed = np.array(problem.compute_prefix, dtype=np.int64)
    costs = ends[reachable] + (computed[count] - computed[reachable])
    last = int(reachable[int(np.argmin(costs))])
    return Outcome(problem.plan(_trace(problem, computed, value, last)), int(costs.min()))


def within(problem: Problem, arrivals: Arrivals, deadline: Deadline) -> list[int] | None:
    """Return boundaries that meet the latest arrivals, or None; raise `TimeUpError` if late."""
    value = _least_communication(problem, deadline, arrivals)
    if value is None:
        raise TimeUpError
    ends = value[: problem.layers, problem.layers]
    last = int(np.argmin(ends))
    if ends[last] == _NEVER:
        return None
    return _trace(problem, np.array(problem.compute_prefix, dtype=np.int64), value, last)


def _least_communication(
    problem: Problem, deadline: Deadline, arrivals: Arrivals | None = None
) -> NDArray[np.int64] | None:
    """Return V[b][c] for batches that meet the latest arrivals; None when time is up."""
    count = problem.layers
    computed = np.array(problem.compute_prefix, dtype=np.int64)
    value = np.full((count + 1, count + 1), _NEVER, dtype=np.int64)
    for start in range(count):
        if deadline.passed:
            return None
        reach = problem.reach(start)
        ends = problem.transfer_times(start, reach)
        known = np.full(len(ends), fill_value=True)
        if start:
            # best[a] = least V[a'][start] over a' >= a; best[start] = never.
            best = np.append(np.minimum.accumulate(value[:start, start][::-1])[::-1], _NEVER)
            before = best[_first_covered(computed, start, ends)]
            known = before < _NEVER
            ends[known] += before[known]
        if arrivals is not None:
            known[known] = arrivals.allowed(start, ends[known])
        value[start, start + 1 : reach + 1][known] = ends[known]
    return value


def _first_covered(
    computed: NDArray[np.int64],
    boundary: int,
    times: NDArray[np.int64],
) -> NDArray[np.intp]:
    """Return for each time the smallest a such that computing a … boundary-1 takes no longer."""
    first = np.searchsorted(computed[:boundary], computed[boundary] - times, side="left")
    return np.asarray(first, dtype=np.intp)


def _trace(
    problem: Problem,
    computed: NDArray[np.int64],
    value: NDArray[np.int64],
    last: int,
) -> list[int]:
    boundaries = [problem.layers, last]
    while boundaries[-1] > 0:
        stop, start = boundaries[-2], boundaries[-1]
        time = np.array([problem.transfer_time(start, stop)], dtype=np.int64)
        first = int(_first_covered(computed, start, time)[0])
        boundaries.append(first + int(np.argmin(value[first:start, start])))
    return boundaries[::-1]
