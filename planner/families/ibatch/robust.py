"""Exact tie-breaking: among plans of least objective, the one least sensitive to delays.

Problem: find the least S such that a plan has makespan at most M* and, with transfers t times and
computation c times as long, at most S (`planner.solving.robustness`). Method: all limits together
are one latest arrival per first layer (`planner.families.ibatch.robust`). Earlier arrivals
dominate, so the exact methods carry over. An infeasible S is raised to the least value that changes
a step. Proof: docs/ibatch.md, "Why the tie-break is exact". Guarantee: no plan of equal objective
is less sensitive. Complexity: the exact method once per target; a bisection of targets per delay in
`STRAINS`. Source: own.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from planner.families.ibatch.evaluation import boundaries_of, evaluate, lasts_under, objective_ns
from planner.families.ibatch.makespan import sweep
from planner.families.ibatch.problem import Plan, Problem
from planner.solving.deadline import Deadline
from planner.solving.robustness import Limit, most_robust

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# ---
# Latest arrivals of batches, by first layer, under makespan limits (see `ibatch.robust`).
#
# A limit says that with transfers t times and computation c times as long a plan lasts at most S. A
# batch that starts with layer a and arrives at E meets it if ``t·E + c·R_a <= S``, where R_a is the
# computation from layer a on.
#
# Complexity: O(L · limits) once, then linear in the arrivals tested. Source: own.


class Arrivals:
    """Latest arrivals of batches, by first layer, under fixed limits and one last limit.

    After calls of `allowed`, `needed_ns` is the least last limit (ns) that would allow an arrival
    that only the last limit forbade; None if there was none.
    """

    def __init__(self, problem: Problem, limits: Sequence[Limit], last: Limit) -> None:
        computed = problem.compute_prefix
        self._rests = [computed[-1] - time for time in computed]
        self._others = self._latest(limits)
        self._last, self._strain = self._latest([last]), last.strain
        self.needed_ns: int | None = None

    def _latest(self, limits: Sequence[Limit]) -> list[int]:
        return [
            max(min((most - c * rest) // t for (t, c), most in limits), -1) for rest in self._rests
        ]

    def allowed(self, start: int, ends: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Return which arrivals (ns) of batches that begin with layer `start` meet all limits."""
        others = ends <= self._others[start]
        # Capping by the other limits keeps the numbers within those of the problem.
        kept = others & (ends <= min(self._last[start], self._others[start]))
        missed = ends[others & ~kept]
        if len(missed):
            transfer, compute = self._strain
            needed = transfer * int(missed.min()) + compute * self._rests[start]
            known = self.needed_ns
            self.needed_ns = needed if known is None else min(known, needed)
        return kept


def robust(problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Plan, bool]:
    """Return the least delay-sensitive plan of equal objective, and whether its proof timed out."""
    best, value = boundaries_of(plan), objective_ns(problem, evaluate(problem, plan))
    lasts = partial(lasts_under, problem)
    if problem.objective == "makespan" and problem.transfer_prefix is not None:
        attempt = partial(sweep, problem)
    else:
        if problem.objective == "makespan":
            from planner.families.ibatch.dynamic import within

            # The fast sweep is only a heuristic here; mostly it finds the optimum, proved below.
            best, _ = most_robust(best, value, lasts, partial(_swept, problem), deadline)
        else:
            from planner.families.ibatch.paper_model import within
        attempt = partial(_attempt, problem, within, deadline)
    best, timed_out = most_robust(best, value, lasts, attempt, deadline)
    return problem.plan(best), timed_out


def _swept(problem: Problem, limits: Sequence[Limit], last: Limit) -> tuple[list[int] | None, int]:
    """Try to meet all limits with batches that each reach as far as possible.

    Costs need not add up here, so the value returned for an infeasible limit is only a guess.
    """
    computed, count = problem.compute_prefix, problem.layers
    boundaries, sent, needed = [0], 0, lasts_under(problem, (0, count), last.strain)
    while boundaries[-1] < count:
        start = boundaries[-1]
        rest = computed[-1] - computed[start]
        latest = min((most - c * rest) // t for (t, c), most in (*limits, last)) - sent
        ends = range(start + 1, problem.reach(start) + 1)
        place = bisect_right(ends, latest, key=partial(problem.transfer_time, start))
        if place < len(ends):
            then = sent + problem.transfer_time(start, ends[place])
            needed = min(needed, last.strain.transfer * then + last.strain.compute * rest)
        if not place or problem.transfer_time(start, ends[place - 1]) > latest:
            return None, needed
        boundaries.append(ends[place - 1])
        sent += problem.transfer_time(start, boundaries[-1])
    return boundaries, lasts_under(problem, boundaries, last.strain)


def _attempt(
    problem: Problem,
    within: Callable[[Problem, Arrivals, Deadline], list[int] | None],
    deadline: Deadline,
    limits: Sequence[Limit],
    last: Limit,
) -> tuple[list[int] | None, int]:
    """Return boundaries that meet all limits, or None and the least last limit that may be met."""
    arrivals = Arrivals(problem, limits, last)
    boundaries = within(problem, arrivals, deadline)
    if boundaries is not None:
        return boundaries, lasts_under(problem, boundaries, last.strain)
    assert arrivals.needed_ns is not None  # the other limits can be kept
    return None, arrivals.needed_ns
