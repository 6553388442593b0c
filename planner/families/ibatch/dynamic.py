"""Exact makespan for any communication cost, by dynamic programming.

Problem: as in `planner.families.ibatch.makespan`, with times c(bytes) that need not add up: a
measured table, or a rate whose products are rounded up to whole nanoseconds. Method: with H[a] the
shortest time to send and compute layers a … L-1 from an idle link, ``H[a] = min_b c(a, b) +
max(H[b], PC[L] - PC[a])`` (docs/ibatch.md). Among optimal plans, each batch reaches as far as H[0]
allows. Guarantee: optimal. At a time limit, a greedy plan or the longest batches, with the
relaxation as the bound. Complexity: O(L²) time in NumPy rows, O(L) memory; `fewest` O(L²) per
batch. Source: own; time reversal of F[j] = min_{i<j} max(F[i], r_j) + c(S_j - S_i) for pushes.
"""

import numpy as np
from numpy.typing import NDArray

from planner.families.ibatch.bounds import out_of_time
from planner.families.ibatch.problem import Plan, Problem
from planner.families.ibatch.robust import Arrivals
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome

_NEVER = np.iinfo(np.int64).max


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


def within(problem: Problem, arrivals: Arrivals, deadline: Deadline) -> list[int] | None:
    """Return boundaries of batches that meet their latest arrivals, or None if there are none.

    The earliest arrival at each boundary dominates all later ones. Raises `TimeUpError`.
    """
    count = problem.layers
    arrived = np.full(count + 1, _NEVER, dtype=np.int64)
    arrived[0] = 0
    before = np.zeros(count + 1, dtype=np.int64)
    for start in range(count):
        deadline.check()
        if arrived[start] == _NEVER:
            continue
        reach = problem.reach(start)
        ends = arrived[start] + problem.transfer_times(start, reach)
        sooner = arrivals.allowed(start, ends) & (ends < arrived[start + 1 : reach + 1])
        arrived[start + 1 : reach + 1][sooner] = ends[sooner]
        before[start + 1 : reach + 1][sooner] = start
    if arrived[count] == _NEVER:
        return None
    boundaries = [count]
    while boundaries[-1] > 0:
        boundaries.append(int(before[boundaries[-1]]))
    return boundaries[::-1]


def fewest(problem: Problem, most_ns: int, below: int, deadline: Deadline) -> list[int] | None:
    """Return boundaries of the fewest batches within a makespan; None unless fewer than `below`."""
    count, computed = problem.layers, problem.compute_prefix
    arrived = np.full(count + 1, _NEVER, dtype=np.int64)
    arrived[0] = 0
    rounds: list[NDArray[np.int64]] = []  # predecessors of the earliest arrivals, by batches
    while len(rounds) < below - 1 and arrived[count] == _NEVER:
        later = np.full(count + 1, _NEVER, dtype=np.int64)
        before = np.zeros(count + 1, dtype=np.int64)
        for start in np.flatnonzero(arrived != _NEVER).tolist():
            deadline.check()
            reach = problem.reach(start)
            ends = arrived[start] + problem.transfer_times(start, reach)
            sooner = (ends <= most_ns - computed[count] + computed[start]) & (
                ends < later[start + 1 : reach + 1]
            )
            later[start + 1 : reach + 1][sooner] = ends[sooner]
            before[start + 1 : reach + 1][sooner] = start
        rounds.append(before)
        arrived = later
    if arrived[count] == _NEVER:
        return None
    boundaries = [count]
    for before in reversed(rounds):
        boundaries.append(int(before[boundaries[-1]]))
    return boundaries[::-1]
