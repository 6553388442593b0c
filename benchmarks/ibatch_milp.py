"""The mixed-integer programs the exact makespan is compared with, the fastest ones we found.

Three solvers, one thread each. *Arcs* are the library's own `milp` and `cpsat` (a binary variable
for each possible batch). *Compact* has a binary variable for each boundary: with k_i the number of
communications up to the one that brings layer i, and n_i the transfer times up to its end,

    M >= Ts k_i + n_i + R_i,  n_i >= n_{i+1} unless a batch ends at layer i,

tightened by an upper bound U on the makespan, the better of the greedy plans: no batch that covers
layer i ends behind the farthest layer that U allows, which bounds n_i, shrinks the big-M, and
forces a boundary into each such window.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from planner.families.ibatch import Problem, solve

Answer = tuple[int | None, bool, float]
"""Objective, whether it is proven, seconds."""


def library(method: str) -> Callable[[Problem, float], Answer]:
    """Return the library's own method, timed from outside."""

    def run(problem: Problem, limit: float) -> Answer:
        begin = time.perf_counter()
        result = solve(problem, method=method, time_limit=limit)
        return result.objective_ns, not result.timed_out, time.perf_counter() - begin

    return run


def compact(problem: Problem, limit: float) -> Answer:
    """Solve the compact formulation with HiGHS."""
    begin = time.perf_counter()
    count, startup = problem.layers, problem.transfer_startup_ns
    arrival, computed = problem.transfer_prefix, problem.compute_prefix
    assert arrival is not None
    upper = solve(problem, method="greedy").objective_ns
    assert upper is not None
    rest = [computed[count] - time_ns for time_ns in computed]
    farthest: list[int] = []
    for layer in range(count):
        communications = 1 if layer == 0 else 2
        end = bisect_right(arrival, upper - communications * startup - rest[layer]) - 1
        farthest.append(max([end, layer + 1, *farthest[-1:]]))
    # Columns: M, then y_1 … y_{L-1}, k_0 … k_{L-1}, n_0 … n_{L-1}.
    y, k, n = 0, count, 2 * count
    columns = 3 * count
    lower, higher = np.zeros(columns), np.full(columns, float(count))
    higher[0] = upper
    higher[1:count] = 1
    lower[k:n] = 1
    higher[k] = 1
    lower[n:] = arrival[1:]
    higher[n:] = [arrival[end] for end in farthest]
    rows: list[dict[int, float]] = []
    least: list[float] = []
    most: list[float] = []

    def row(entries: dict[int, float], low: float, high: float = np.inf) -> None:
        rows.append(entries)
        least.append(low)
        most.append(high)

    for layer in range(count):
        row({0: 1, k + layer: -startup, n + layer: -1}, rest[layer])
        if layer:
            row({k + layer: 1, k + layer - 1: -1, y + layer: -1}, 0, 0)
            big = arrival[farthest[layer]] - arrival[layer]
            row({n + layer - 1: 1, n + layer: -1, y + layer: big}, 0)
        if farthest[layer] < count:
            row({k + farthest[layer]: 1, k + layer: -1}, 1)
    indices = [column for entries in rows for column in entries]
    data = [value for entries in rows for value in entries.values()]
    starts = np.cumsum([0, *(len(entries) for entries in rows)])
    matrix = csr_array((data, indices, starts), shape=(len(rows), columns))
    objective = np.zeros(columns)
    objective[0] = 1
    answer = milp(
        objective,
        integrality=np.r_[0, np.ones(count - 1), np.zeros(2 * count)],
        bounds=Bounds(lower, higher),
        constraints=LinearConstraint(matrix, least, most),
        options={"time_limit": limit, "mip_rel_gap": 0.5 / upper},  # times are integers
    )
    found = None if answer.x is None else round(answer.x[0])
    return found, answer.status == 0, time.perf_counter() - begin


SOLVERS: Mapping[str, Callable[[Problem, float], Answer]] = {
    "compact, HiGHS": compact,
    "arcs, CBC (`milp`)": library("milp"),
    "arcs, CP-SAT (`cpsat`)": library("cpsat"),
}
