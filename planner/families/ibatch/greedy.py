"""iBatch's greedy Algorithms 1 and 2, and the better of the two.

Problem: boundaries such that communication of each batch covers computation of the batch before
(Eq. 5). How gaps in the paper are closed: docs/ibatch.md, "How the published algorithms are read".
Guarantee: none.
Complexity: O(L log L), since monotone conditions are bisected; O(L²) with a cost table in which a
larger size can take less time. These scans stop at the deadline.
Source: iBatch, Algorithms 1 and 2 (line 5 of Algorithm 2 prints L_{N-1}; the last batch, l_{N-1}+1
… L, is meant).
"""

from bisect import bisect_left
from operator import itemgetter

from planner.families.ibatch.evaluation import check, evaluate, objective_ns
from planner.families.ibatch.problem import Plan, Problem
from planner.model.errors import BrokenConstraintError
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome


def greedy(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return the better plan of Algorithms 1 and 2; if equal, that of Algorithm 1."""
    candidates = []
    for algorithm in (greedy_forward, greedy_backward):
        outcome = algorithm(problem, deadline)
        assert outcome.plan is not None
        try:
            check(problem, outcome.plan)
        except BrokenConstraintError:  # merging for Eq. 5 went beyond the cap
            continue
        candidates.append((objective_ns(problem, evaluate(problem, outcome.plan)), outcome))
    return min(candidates, key=itemgetter(0))[1] if candidates else outcome


def greedy_forward(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Run Algorithm 1: choose l_1, l_2, … from the left."""
    count, computed = problem.layers, problem.compute_prefix
    first = _first_boundary(problem, deadline)
    if first is None:
        return Outcome(problem.plan(cut_from_left(problem, [0])))
    boundaries = [0, first]
    while boundaries[-1] < count:
        start = boundaries[-1]
        late = deadline.passed and not problem.is_monotone  # each look-up is a scan
        covered = computed[start] - computed[boundaries[-2]]
        stop = None if late else _shortest_cover(problem, start, covered)
        if stop is None:
            boundaries = cut_from_left(problem, boundaries)
            break
        boundaries.append(stop)
    if problem.objective == "eq4":
        while len(boundaries) > 2 and not _covers(problem, *boundaries[-3:]):
            del boundaries[-2]
    return Outcome(problem.plan(boundaries))


def greedy_backward(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Run Algorithm 2: choose l_{N-1}, l_{N-2}, … from the right."""
    count = problem.layers
    last = _last_boundary(problem)
    boundaries = [count] if last is None else [count, last]
    if last is None:
        _cut_from_right(problem, boundaries)
    while boundaries[-1] > 0:
        start = _longest_covered(problem, boundaries[-1], boundaries[-2])
        if start is None:
            boundaries = _cut_from_right(problem, boundaries)
            break
        boundaries.append(start)
    boundaries.reverse()
    if problem.objective == "eq4":
        while len(boundaries) > 2 and not _covers(problem, *boundaries[:3]):
            del boundaries[1]
    return Outcome(problem.plan(boundaries))


def _covers(problem: Problem, start: int, boundary: int, stop: int) -> bool:
    """Return whether Eq. 5 holds between two adjacent batches."""
    computation = problem.compute_prefix[boundary] - problem.compute_prefix[start]
    return problem.transfer_time(boundary, stop) >= computation


def _first_boundary(problem: Problem, deadline: Deadline) -> int | None:
    """Return l_1 with the most computation that a second batch covers; ties: cheapest batch."""
    count, computed = problem.layers, problem.compute_prefix
    if problem.is_monotone and problem.max_batch_bytes is None:
        # Moving l_1 right adds computation and takes communication away: bisect the last feasible.
        uncovered = range(1, count)
        feasible = bisect_left(uncovered, x=True, key=lambda b: not _covers(problem, 0, b, count))
        if feasible == 0:
            return None
        return max(1, bisect_left(computed, computed[feasible]))
    best: int | None = None
    for boundary in range(min(problem.reach(0), count - 1), 0, -1):
        if deadline.passed or (best is not None and computed[boundary] < computed[best]):
            break  # with boundaries farther left, less computation is covered
        if _shortest_cover(problem, boundary, computed[boundary]) is not None and (
            best is None or problem.transfer_time(0, boundary) <= problem.transfer_time(0, best)
        ):
            best = boundary
    return best


def _shortest_cover(problem: Problem, start: int, computation: int) -> int | None:
    """Return the end of the batch from `start` on that covers `computation` in the least time."""
    ends = range(start + 1, problem.reach(start) + 1)
    if not ends:
        return None
    if problem.is_monotone:
        position = bisect_left(ends, computation, key=lambda end: problem.transfer_time(start, end))
        return ends[position] if position < len(ends) else None
    times = ((problem.transfer_time(start, end), end) for end in ends)
    return min((pair for pair in times if pair[0] >= computation), default=(0, None))[1]


def _longest_covered(problem: Problem, boundary: int, stop: int) -> int | None:
    """Return the start of the longest computation that the batch boundary … stop-1 covers."""
    computed = problem.compute_prefix
    uncovered = computed[boundary] - problem.transfer_time(boundary, stop)
    start = bisect_left(computed, uncovered, 0, boundary)
    start = max(start, _reach_left(problem, boundary))
    return start if start < boundary else None


def _last_boundary(problem: Problem) -> int | None:
    """Return l_{N-1} with the most covered computation; ties: shortest last batch."""
    computed = problem.compute_prefix
    best, best_overlap = None, -1
    for boundary in range(max(1, _reach_left(problem, problem.layers)), problem.layers):
        start = _longest_covered(problem, boundary, problem.layers)
        if start is None:
            continue
        overlap = computed[boundary] - computed[start]
        if overlap >= best_overlap:  # of equal ones the last boundary leaves least computation
            best, best_overlap = boundary, overlap
    return best


def _reach_left(problem: Problem, stop: int) -> int:
    """Return the smallest `start` such that layers start … stop-1 respect the cap."""
    if problem.max_batch_bytes is None or problem.size_prefix is None:
        return 0
    return bisect_left(problem.size_prefix, problem.size_prefix[stop] - problem.max_batch_bytes)


def cut_from_left(problem: Problem, boundaries: list[int]) -> list[int]:
    """Append the boundaries of the longest batches within the cap."""
    while boundaries[-1] < problem.layers:
        boundaries.append(problem.reach(boundaries[-1]))
    return boundaries


def _cut_from_right(problem: Problem, boundaries: list[int]) -> list[int]:
    while boundaries[-1] > 0:
        boundaries.append(_reach_left(problem, boundaries[-1]))
    return boundaries
