"""Latest arrivals of batches, by first layer, under makespan limits (see `ibatch.robust`).

A limit says that with transfers t times and computation c times as long a plan lasts at most S. A
batch that starts with layer a and arrives at E meets it if ``t·E + c·R_a <= S``, where R_a is the
computation from layer a on.

Complexity: O(L · limits) once, then linear in the arrivals tested. Source: own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.families.ibatch.problem import Problem
from planner.solving.robustness import Limit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
