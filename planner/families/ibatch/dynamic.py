"""Exact methods by dynamic programming, in NumPy rows, for any communication cost and cap.

Makespan, as in `planner.families.ibatch.makespan`, with times c(bytes) that need not add up: a
measured table, or a rate whose products are rounded up to whole nanoseconds. Method: with H[a] the
shortest time to send and compute layers a … L-1 from an idle link, ``H[a] = min_b c(a, b) +
max(H[b], PC[L] - PC[a])`` (docs/ibatch.md). Among optimal plans, each batch reaches as far as H[0]
allows. Guarantee: optimal. At a time limit, a greedy plan or the longest batches, with the
relaxation as the bound. Complexity: O(L²) time, O(L) memory; `fewest` O(L²) per batch. Source: own;
time reversal of F[j] = min_{i<j} max(F[i], r_j) + c(S_j - S_i) for pushes.
"""

import numpy as np
from numpy.typing import NDArray

from planner.families.ibatch.bounds import nothing_covers, out_of_time
from planner.families.ibatch.problem import Plan, Problem
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

MAX_LAYERS = 4096
"""With more layers the table V of the paper's model is too large (134 MB at the limit)."""

_NEVER = np.iinfo(np.int64).max

Ends = NDArray[np.int64]


def solve_general(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the makespan; every layer must respect the cap."""
    count, computed = problem.layers, problem.compute_prefix
    finish = np.zeros(count + 1, dtype=np.int64)

    def finishes(start: int) -> NDArray[np.int64]:
        """Return the makespan of layers start … L-1 for each end of their first batch."""
        reach = problem.reach(start)
        rest = np.maximum(finish[start + 1 : reach + 1], computed[count] - computed[start])
        return problem.transfer_times(start, reach) + rest

    for start in range(count - 1, -1, -1):
        if deadline.passed:
            return out_of_time(problem)
        finish[start] = finishes(start).min()
    optimum, sent = int(finish[0]), 0
    boundaries = [0]
    while boundaries[-1] < count:
        start = boundaries[-1]
        stop = start + 1 + int(np.flatnonzero(finishes(start) <= optimum - sent)[-1])
        sent += problem.transfer_time(start, stop)
        boundaries.append(stop)
    return Outcome(problem.plan(boundaries), optimum)


def fewest(problem: Problem, most_ns: int, below: int, deadline: Deadline) -> list[int] | None:
    """Return boundaries of the fewest batches within a makespan; None unless fewer than `below`.

    The earliest arrival at each boundary dominates all later ones. Raises `TimeUpError`.
    """
    count, computed = problem.layers, problem.compute_prefix
    arrived = np.full(count + 1, _NEVER, dtype=np.int64)
    arrived[0] = 0
    rounds: list[Ends] = []  # first layer of the last batch at each boundary, by number of batches
    while len(rounds) < below - 1 and arrived[count] == _NEVER:
        later = np.full(count + 1, _NEVER, dtype=np.int64)
        before = np.zeros(count + 1, dtype=np.int64)
        for start in np.flatnonzero(arrived < _NEVER).tolist():
            deadline.check()
            stops = slice(start + 1, problem.reach(start) + 1)
            ends = arrived[start] + problem.transfer_times(start, stops.stop - 1)
            sooner = (ends <= most_ns - computed[count] + computed[start]) & (ends < later[stops])
            later[stops][sooner] = ends[sooner]
            before[stops][sooner] = start
        rounds.append(before)
        arrived = later
    if arrived[count] == _NEVER:
        return None
    boundaries = [count]
    for before in reversed(rounds):
        boundaries.append(int(before[boundaries[-1]]))
    return boundaries[::-1]


# ---
# Exact minimum of Eq. 4 under Eq. 5, by dynamic programming over two boundaries.
#
# Problem: minimise all communication plus the computation of the last batch (Eq. 4), such that
# communication of each batch lasts at least as long as computation of the batch before (Eq. 5).
# Method: V[b][c] is the least total communication of batches that end at c, the last being b … c-1.
# Predecessors a … b-1 allowed by Eq. 5 form a suffix in a, so suffix minima give V[b][c] in one
# look-up (docs/ibatch.md). Guarantee: optimal, or proof that no plan exists. Complexity: O(L² log
# L) time, O(L²) memory; up to `MAX_LAYERS` layers. Source: iBatch, Eqs. 1 to 5; the method is own.


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


def _least_communication(problem: Problem, deadline: Deadline) -> Ends | None:
    """Return the table V[b][c] of least total communication; None when time is up."""
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
        value[start, start + 1 : reach + 1][known] = ends[known]
    return value


def _first_covered(
    computed: Ends,
    boundary: int,
    times: Ends,
) -> NDArray[np.intp]:
    """Return for each time the smallest a such that computing a … boundary-1 takes no longer."""
    first = np.searchsorted(computed[:boundary], computed[boundary] - times, side="left")
    return np.asarray(first, dtype=np.intp)


def _trace(
    problem: Problem,
    computed: Ends,
    value: Ends,
    last: int,
) -> list[int]:
    boundaries = [problem.layers, last]
    while boundaries[-1] > 0:
        stop, start = boundaries[-2], boundaries[-1]
        time = np.array([problem.transfer_time(start, stop)], dtype=np.int64)
        first = int(_first_covered(computed, start, time)[0])
        boundaries.append(first + int(np.argmin(value[first:start, start])))
    return boundaries[::-1]
