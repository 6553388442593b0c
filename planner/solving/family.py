"""The one path from a problem to a result: a plan is made, checked, priced, bounded.

A *method* is a function of a problem and a deadline that returns an `Outcome`. Whoever made a plan,
`Family.verify` checks it and works out its price; the method's own is never used. Among plans of
equal cost the simplest is returned (`planner.solving.tie_break`).
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Generic, get_args

from planner.model.errors import (
    BrokenConstraintError,
    InvalidInputError,
    InvalidPlanError,
    PluginError,
)
from planner.model.validation import one_of, shown
from planner.solving.compare import Case
from planner.solving.deadline import NEVER, Cancel, Deadline, Incumbent, TimeUpError
from planner.solving.declared import Declared
from planner.solving.methods import REPLAN, Method, Outcome
from planner.solving.plugins import is_plugged
from planner.solving.result import EvaluationT, Infeasibility, PlanT, ProblemT, Result
from planner.solving.tie_break import PRICED, Prefer

OUT_OF_TIME = Infeasibility("the time limit passed before any plan was found", ("time_limit_s",))
"""The infeasibility of a method that had no time to make a plan."""


class Family(Declared[ProblemT, PlanT, EvaluationT]):
    """A family of problems: subclass it, define what `Declared` asks, and make one instance.

    `solve` and the functions of `planner.solving` then work for its problems.
    """

    def simplest(self, problem: ProblemT, plan: PlanT, most_ns: int, deadline: Deadline) -> PlanT:
        """Return a plan of at most `most_ns` with fewest transfers.

        By default neighbouring transfers are sent together where the plan still costs no more.
        """
        place, left = 0, PRICED
        while (count := self.transfers(plan)) > place + 1 and left > 0 and not deadline.passed:
            left -= count
            tried = self.merged(problem, plan, place)
            fits = False
            with suppress(InvalidPlanError):
                fits = tried is not None and self.price(problem, tried) <= most_ns
            if tried is not None and fits:
                plan = tried
            else:
                place += 1
        return plan

    def price(self, problem: ProblemT, plan: PlanT, deadline: Deadline = NEVER) -> int:
        """Return the cost of a plan (ns); InvalidPlanError if the plan does not fit the problem."""
        return self.priced(problem, plan, deadline)[1]

    def solve(
        self,
        problem: ProblemT,
        *,
        method: str = "auto",
        time_limit: float | Deadline | None = None,
        on_progress: Callable[[Incumbent[PlanT]], None] | None = None,
        cancel: Cancel | None = None,
        start: PlanT | None = None,
        tie_break: Prefer | None = "simple",
    ) -> Result[PlanT, EvaluationT]:
        """Solve a problem by one of the family's methods.

        Parameters
        ----------
        problem : Problem
            What to plan.
        method : str
            A key of the family's methods, or ``replan``, which improves `start` in milliseconds.
        time_limit : float or Deadline, optional
            Seconds after which the best plan so far is returned, or the point in time.
        on_progress : callable, optional
            Called with an `Incumbent` whenever there is a better plan or bound, from within the
            solver: what it raises ends the search.
        cancel : Cancel, optional
            Ends the search as the time limit does once it is set.
        start : Plan, optional
            An old plan: if it fits this problem, or fits it with other numbers, the result is no
            worse; else it is ignored, and the result's `warnings` say why. A plan that does not fit
            makes the result of ``replan`` infeasible.
        tie_break : {"simple", "robust"}, optional
            Which of the plans of equal cost a search returns; None: the one that it found.

        Returns
        -------
        Result
            The plan, checked and priced outside the method, with a lower bound; or why there is
            none.

        Raises
        ------
        InvalidInputError
            If the method is unknown or does not apply, or the time limit is no number above 0.
        RuntimeError
            If what a method returned is no plan of the problem: a fault of the method; a
            `PluginError` of another package's.
        """
        methods = self.methods_for(problem)
        return self.run(
            problem,
            method,
            methods,
            Deadline.of(time_limit, cancel),
            on_progress,
            start,
            tie_break,
        )

    def solve_case(
        self, case: Case[ProblemT], *, method: str, time_limit: float | None, cancel: Cancel | None
    ) -> Result[PlanT, EvaluationT]:
        """Solve the problem of a case by a method to compare."""
        return self.solve(case.problem, method=method, time_limit=time_limit, cancel=cancel)

    def run(
        self,
        problem: ProblemT,
        method: str,
        methods: Mapping[str, Method[ProblemT, PlanT]],
        deadline: Deadline,
        on_progress: Callable[[Incumbent[PlanT]], None] | None = None,
        start: PlanT | None = None,
        tie_break: Prefer | None = "simple",
    ) -> Result[PlanT, EvaluationT]:
        """Solve a problem by one of the methods given, as `solve` does."""
        if start is not None and not isinstance(start, self.plan_type):
            raise InvalidInputError("start", f"expected a plan of the problem, got {shown(start)}")
        if method == REPLAN and start is None:
            raise InvalidInputError("start", f"missing: method {REPLAN} begins with a plan")
        if method != REPLAN:
            one_of(method, methods, "method")
        if tie_break is not None:
            one_of(tie_break, get_args(Prefer), "tie_break")
        incumbents = Incumbents(self, problem, on_progress)
        deadline = incumbents.listening(deadline)
        begin = time.perf_counter()
        warnings: tuple[str, ...] = ()
        try:
            if method == REPLAN:
                assert start is not None
                outcome = self._started(problem, start, deadline)
            else:
                if start is not None:
                    old, refused = self._offered(problem, start, incumbents, deadline)
                    warnings = (f"start_plan is ignored: {refused}",) if refused else ()
                    methods = methods if old is None else {**methods, **self.resume(problem, old)}
                outcome = methods[method](problem, deadline)
            runtime = time.perf_counter() - begin
            outcome = outcome if outcome.method else replace(outcome, method=method)
            result = self.verify(problem, outcome, runtime, deadline)
        except TimeUpError:  # also during the check: an unchecked plan is dropped
            runtime = time.perf_counter() - begin
            result = Result(method, None, None, None, runtime, True, OUT_OF_TIME)
        bounded = method != REPLAN  # within milliseconds there is no time for a bound
        result = incumbents.best_of(result, deadline, bounded=bounded)
        free = method != REPLAN and not self.follows_rule(problem, method)
        if tie_break is not None and free:
            result = self._tie_broken(problem, result, tie_break, deadline)
        incumbents.end(result)
        return replace(result, warnings=warnings) if warnings else result

    def verify(
        self,
        problem: ProblemT,
        outcome: Outcome[PlanT],
        runtime_s: float,
        deadline: Deadline = NEVER,
    ) -> Result[PlanT, EvaluationT]:
        """Check, price and bound what a method returned after `runtime_s` seconds.

        RuntimeError if its plan is no plan of the problem: a fault of the method.
        """
        method, plan, timed_out = outcome.method, outcome.plan, outcome.timed_out
        if plan is None:
            reason = outcome.infeasibility
            return Result(method, None, None, None, runtime_s, timed_out, reason)
        try:
            evaluation, objective = self.priced(problem, plan, deadline)
        except InvalidInputError as error:
            if method == REPLAN:
                return Result(method, None, None, None, runtime_s, timed_out, _unfit(error))
            if not isinstance(error, InvalidPlanError):
                raise
            fault = PluginError if is_plugged(method) else RuntimeError
            raise fault(f"method {method} made no plan: {error}") from error
        bound = outcome.lower_bound
        if bound is None and method != REPLAN:
            bound, cut = self.bound(problem, plan, deadline)
            timed_out |= cut
        whole = _whole(bound)
        return Result(method, plan, objective, whole, runtime_s, timed_out, evaluation=evaluation)

    def _tie_broken(
        self,
        problem: ProblemT,
        result: Result[PlanT, EvaluationT],
        tie_break: Prefer,
        deadline: Deadline,
    ) -> Result[PlanT, EvaluationT]:
        """Return the result with the preferred one of the plans of equal cost."""
        plan, objective = result.plan, result.objective_ns
        if plan is None or objective is None or deadline.passed:
            return result
        begin = time.perf_counter()
        try:
            if tie_break == "robust":
                made = self.most_robust(problem, plan, deadline)
            else:
                made = self.simplest(problem, plan, objective, deadline)
            if made == plan:
                return result
            evaluation, cost = self.priced(problem, made, deadline)
        except TimeUpError:
            return replace(result, timed_out=True)
        if cost > objective:
            raise RuntimeError(f"tie-breaking made a plan of {cost} ns, above {objective} ns")
        same = self.same_bound(plan, made)
        return replace(
            result,
            plan=made,
            objective_ns=cost,
            evaluation=evaluation,
            lower_bound_ns=result.lower_bound_ns if same else None,
            runtime_s=result.runtime_s + time.perf_counter() - begin,
        )

    def priced(self, problem: ProblemT, plan: PlanT, deadline: Deadline) -> tuple[EvaluationT, int]:
        """Return the evaluation of a plan and its objective (ns), once it is checked."""
        self.check(problem, plan, deadline)
        evaluation = self.evaluate(problem, plan, deadline)
        return evaluation, self.objective(problem, evaluation)

    def _started(self, problem: ProblemT, start: PlanT, deadline: Deadline) -> Outcome[PlanT]:
        """Return the adapted start plan, or why it does not fit the problem.

        A start plan may belong to any other problem. Only this function takes it, and only `adapt`
        sees it unchecked.
        """
        try:
            plan = self.adapt(problem, start)
            if type(self).improve is Family.improve:
                return Outcome(plan)  # the caller checks it
            with suppress(BrokenConstraintError):  # such as a memory limit: a change may repair it
                self.priced(problem, plan, deadline)
            return self.improve(problem, plan, deadline)
        except InvalidInputError as error:
            return Outcome(None, infeasibility=_unfit(error))

    def _offered(
        self,
        problem: ProblemT,
        start: PlanT,
        incumbents: "Incumbents[ProblemT, PlanT, EvaluationT]",
        deadline: Deadline,
    ) -> tuple[PlanT | None, str]:
        """Offer a start plan to a search; return the adapted plan, or why it does not fit."""
        with suppress(TimeUpError):
            old = self._started(problem, start, deadline)
            if old.plan is None:
                assert old.infeasibility is not None
                return None, old.infeasibility.reason
            error = incumbents.offer(old.plan, old.lower_bound, REPLAN, deadline)
            return (old.plan, "") if error is None else (None, _unfit(error).reason)
        return None, "the time limit passed before it was checked"


def _unfit(error: InvalidInputError) -> Infeasibility:
    return Infeasibility(f"the start plan does not fit this problem ({error})", ("start_plan",))


class Incumbents(Generic[ProblemT, PlanT, EvaluationT]):
    """The plans of one search; `on_progress` receives each better plan or bound.

    Each plan a search reports is verified like its last one, and the best is kept. So a listener
    receives only valid plans with the prices that results have, and a search that is cancelled
    returns a plan at least as good as any it has reported.
    """

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
        """Return the deadline for a search whose incumbents are reported here."""
        if self._tell is None:
            return deadline.telling(None)

        def offered(plan: PlanT, lower_bound: int | Fraction | None) -> None:
            with suppress(TimeUpError):  # without time for its check a plan is dropped
                self.offer(plan, lower_bound, deadline=deadline)

        return deadline.telling(offered)

    def offer(
        self,
        plan: PlanT,
        lower_bound: int | Fraction | None = None,
        method: str = "",
        deadline: Deadline = NEVER,
    ) -> InvalidInputError | None:
        """Take an unchecked plan and a bound (ns); return the reason if the plan is invalid."""
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

        The bound of the search may not hold for the op order of another plan; if `bounded`, that
        plan gets a new bound.
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
        """Report the result, unless it was the last one reported."""
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
