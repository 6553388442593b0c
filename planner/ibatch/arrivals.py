"""When batches have to have arrived, so that a plan keeps some limits under strains.

A limit says that under a strain (t, c) a plan lasts at most S: a batch that starts with layer a and
arrives at E keeps it if ``t·E + c·R_a <= S``, with R_a the computation from layer a on. See
`planner.ibatch.robust`.

Complexity: O(layers · limits) once, then linear in the arrivals that are asked about. Source: own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.ibatch.problem import Problem
from planner.robustness import Limit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Arrivals"]


class Arrivals:
    """When a batch has to have arrived, by its first layer, to keep some limits and one more.

    Attributes
    ----------
    needed_ns : int or None
        The least the last limit would have to be to allow more than was allowed so far.
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
        """Return which arrivals of batches that begin with layer `start` keep all limits."""
        others = ends <= self._others[start]
        # What the others forbid is not asked again; so numbers stay within those of the problem.
        kept = others & (ends <= min(self._last[start], self._others[start]))
        missed = ends[others & ~kept]
        if len(missed):
            transfer, compute = self._strain
            needed = transfer * int(missed.min()) + compute * self._rests[start]
            known = self.needed_ns
            self.needed_ns = needed if known is None else min(known, needed)
        return kept
