"""Incumbents: each plan a search reports is verified like its last one, and the best is kept.

So a listener hears of plans of the problem only, at the price that results have, and a search that
is cancelled returns a plan at least as good as any it has told of.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, TypeVar

from planner.model.errors import InvalidInputError
from planner.solving.deadline import NEVER, Deadline, Incumbent, TimeUpError
from planner.solving.result import Result

if TYPE_CHECKING:
    from planner.solving.family import Family

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")


class Incumbents(Generic[ProblemT, PlanT, EvaluationT]):
    """The plans of one search; `on_progress` is told of each better plan or bound."""

    def __init__(
        self,
        family: "Family[ProblemT, PlanT, EvaluationT]",
        problem: ProblemT,
        on_progress: Callable[[Incumbent[PlanT]], None] | None = None,
    ) -> None:
        self._family, self._problem, self._tell = family, problem, on_progress
        self._begin = time.perf_counter()
        self._best: tuple[PlanT, EvaluationT, int, str] | None = None
        self._bound: int | None = None

    def listening(self, deadline: Deadline) -> Deadline:
        """Return the deadline to give to a search: plans that it offers come here."""
        if self._tell is None:
            return deadline.telling(None)

        def offered(plan: PlanT, lower_bound: int | Fraction | None) -> None:
            with suppress(TimeUpError):  # a plan that there is no time to check is none
                self.offer(plan, lower_bound, deadline=deadline)

        return deadline.telling(offered)

    def offer(
        self,
        plan: PlanT,
        lower_bound: int | Fraction | None = None,
        method: str = "",
        deadline: Deadline = NEVER,
    ) -> InvalidInputError | None:
        """Take a plan, unchecked, and a bound (ns); return why not, if it is no plan."""
        if self._best is not None and plan is self._best[0]:
            self._say(_whole(lower_bound), better=False)
            return None
        try:
            evaluation, objective = self._family.priced(self._problem, plan, deadline)
        except InvalidInputError as error:  # a search may begin with a simpler problem
            return error
        better = self._best is None or objective < self._best[2]
        if better:
            self._best = plan, evaluation, objective, method
        self._say(_whole(lower_bound), better=better)
        return None

    def best_of(
        self, result: Result[PlanT, EvaluationT], deadline: Deadline, *, bounded: bool
    ) -> Result[PlanT, EvaluationT]:
        """Return the result of the search, or a better incumbent in its place.

        What the search proved may not hold for the op order of another plan, which is bounded anew
        if `bounded`.
        """
        if self._best is not None:
            plan, evaluation, objective, method = self._best
            if result.objective_ns is None or objective < result.objective_ns:
                least, cut = self._bounded(plan, deadline) if bounded else (None, False)
                result = replace(
                    result,
                    method=method or result.method,
                    plan=plan,
                    objective_ns=objective,
                    lower_bound_ns=_whole(least),
                    timed_out=result.timed_out or cut,
                    infeasibility=None,
                    evaluation=evaluation,
                )
        return result

    def end(self, result: Result[PlanT, EvaluationT]) -> None:
        """Tell of the result, if it is not what was told last."""
        if self._tell is not None and result.plan is not None:
            assert result.objective_ns is not None
            assert result.evaluation is not None
            better = self._best is None or result.plan is not self._best[0]
            self._best = result.plan, result.evaluation, result.objective_ns, result.method
            self._say(result.lower_bound_ns, better=better)

    def _bounded(self, plan: PlanT, deadline: Deadline) -> tuple[int | Fraction | None, bool]:
        try:
            return self._family.bound(self._problem, plan, deadline)
        except TimeUpError:
            return None, True

    def _say(self, lower_bound_ns: int | None, *, better: bool) -> None:
        if lower_bound_ns is not None and (self._bound is None or lower_bound_ns > self._bound):
            self._bound, better = lower_bound_ns, True
        if better and self._tell is not None and self._best is not None:
            plan, _, objective, _ = self._best
            passed = time.perf_counter() - self._begin
            self._tell(Incumbent(plan, objective, self._bound, passed))


def _whole(bound: int | Fraction | None) -> int | None:
    """Return a bound in whole nanoseconds: objectives are rounded up too, so it stays one."""
    return None if bound is None else -int(-bound // 1)
