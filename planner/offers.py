"""Plans that a search tells of on its way: checked and priced like its last, the best one kept.

So whoever listens hears of nothing but plans of the problem, at the price that results have; and
who cancels at one of them gets a plan at least as good.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

from planner.deadline import NEVER, Deadline, Incumbent, TimeUpError
from planner.errors import InvalidInputError
from planner.results import Result

__all__ = ["Bound", "Judge", "Offers"]

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")

Judge: TypeAlias = Callable[[ProblemT, PlanT, Deadline], tuple[EvaluationT, int]]
"""Checks a plan and returns what it costs, in detail and as the objective (ns)."""

Bound: TypeAlias = Callable[[ProblemT, PlanT, Deadline], tuple[int | Fraction | None, bool]]
"""Returns a bound (ns) on every plan, if there is one, and whether the deadline cut it short."""


class Offers(Generic[ProblemT, PlanT, EvaluationT]):
    """The plans of one search.

    Parameters
    ----------
    problem : object
        Whose plans they are.
    judge : callable
        Checks and prices them.
    on_progress : callable or None
        Called with a `planner.deadline.Incumbent` for each better plan or bound.
    """

    def __init__(
        self,
        problem: ProblemT,
        judge: Judge[ProblemT, PlanT, EvaluationT],
        on_progress: Callable[[Incumbent[PlanT]], None] | None = None,
    ) -> None:
        self._problem, self._judge, self._tell = problem, judge, on_progress
        self._begin = time.perf_counter()
        self._best: tuple[PlanT, EvaluationT | None, int, str] | None = None
        self._bound: int | None = None

    @property
    def listening(self) -> bool:
        """Whether anybody is told."""
        return self._tell is not None

    def consider(
        self,
        plan: PlanT,
        lower_bound: int | Fraction | None = None,
        method: str = "",
        deadline: Deadline = NEVER,
    ) -> InvalidInputError | None:
        """Take a plan with a bound on all plans; return why not, if it is none of the problem.

        Parameters
        ----------
        plan : Plan
            Not yet checked.
        lower_bound : int or Fraction, optional
            What no plan undercuts (ns).
        method : str
            Who made it, if not the method that is asked.
        deadline : Deadline
            When to give up checking it.
        """
        if self._best is not None and plan is self._best[0]:
            self._say(_whole(lower_bound), better=False)
            return None
        try:
            evaluation, objective = self._judge(self._problem, plan, deadline)
        except InvalidInputError as error:  # a search may begin with a simpler problem
            return error
        better = self._best is None or objective < self._best[2]
        if better:
            self._best = plan, evaluation, objective, method
        self._say(_whole(lower_bound), better=better)
        return None

    def end(
        self,
        result: Result[PlanT, EvaluationT],
        deadline: Deadline,
        bound: Bound[ProblemT, PlanT],
    ) -> Result[PlanT, EvaluationT]:
        """Return the result of the search, or the best plan before in its place if that is better.

        Parameters
        ----------
        result : Result
            What the search ended with.
        deadline : Deadline
            When to stop bounding.
        bound : callable
            Bounds the plan that is returned, since what the search proved may not hold for it.
        """
        if self._best is not None:
            plan, evaluation, objective, method = self._best
            if result.objective_ns is None or objective < result.objective_ns:
                try:
                    least, cut = bound(self._problem, plan, deadline)
                except TimeUpError:
                    least, cut = None, True
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
        if self._tell is not None and result.plan is not None:
            assert result.objective_ns is not None
            better = self._best is None or result.plan is not self._best[0]
            self._best = result.plan, result.evaluation, result.objective_ns, result.method
            self._say(result.lower_bound_ns, better=better)
        return result

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
