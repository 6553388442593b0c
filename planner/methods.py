"""The one way every plan takes in every family: made, checked, priced, bounded, a `Result`.

A *method* is a function of a problem and a deadline that returns an `Outcome`. A family is a
mapping of names to methods (its ``METHODS``) with three functions that know no method: one checks
a plan, one prices it, one bounds what any plan costs. `solve_with` puts them together.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar, Unpack

from planner.deadline import Cancel, Control, Deadline, TimeUpError
from planner.errors import (
    BrokenConstraintError,
    InvalidInputError,
    InvalidPlanError,
    NotApplicableError,
    PluginError,
)
from planner.offers import Bound, Judge, Offers
from planner.plugins import is_plugged, plugged
from planner.results import Infeasibility, Result
from planner.validation import did_you_mean, shown

__all__ = [
    "OUT_OF_TIME",
    "REPLAN",
    "Adapt",
    "Method",
    "Outcome",
    "Refit",
    "Resumed",
    "concrete",
    "deadline_in",
    "judged",
    "known_method",
    "loaded",
    "named",
    "solve_with",
    "with_plugins",
]

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")
EvaluationT = TypeVar("EvaluationT")

REPLAN = "replan"
"""The method of every family that starts from an old plan and ends within milliseconds."""

OUT_OF_TIME = Infeasibility("the time limit passed before any plan was found", ("time_limit_s",))
"""Why there is no plan if a method had no time to make one."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[PlanT]):
    """What a method answers: a plan, or why there is none, and what it proved.

    Attributes
    ----------
    plan : PlanT or None
        The plan; None exactly if `infeasibility` is given.
    lower_bound : int or Fraction or None
        Bound (ns) on the cost of every plan that the method proved on the way, if any.
    timed_out : bool
        Whether the deadline cut in.
    infeasibility : Infeasibility or None
        Why there is no plan.
    method : str
        The method that made it, if this one only chose among others.
    """

    plan: PlanT | None
    lower_bound: int | Fraction | None = None
    timed_out: bool = False
    infeasibility: Infeasibility | None = None
    method: str = ""


Method: TypeAlias = Callable[[ProblemT, Deadline], Outcome[PlanT]]

Adapt: TypeAlias = Callable[[ProblemT, PlanT], PlanT]

Refit: TypeAlias = Callable[[ProblemT, PlanT, Deadline], Outcome[PlanT]]

Resumed: TypeAlias = Callable[[PlanT], Mapping[str, Method[ProblemT, PlanT]]]


def solve_with(
    methods: Mapping[str, Method[ProblemT, PlanT]],
    problem: ProblemT,
    method: str,
    time_limit: float | None,
    *,
    judge: Judge[ProblemT, PlanT, EvaluationT],
    bound: Bound[ProblemT, PlanT],
    adapt: Adapt[ProblemT, PlanT] | None = None,
    refit: Refit[ProblemT, PlanT] | None = None,
    resumed: Resumed[PlanT, ProblemT] | None = None,
    form: Any = object,
    **control: Unpack[Control[PlanT]],
) -> Result[PlanT, EvaluationT]:
    """Solve a problem by one of a family's methods.

    Parameters
    ----------
    methods : mapping of str to method
        The family's.
    problem : object
        What to solve.
    method : str
        A key of `methods`, or `REPLAN`.
    time_limit : float or None
        Seconds after which a method returns the best it has.
    judge : callable
        Checks a plan and returns what it costs, in detail and as the objective (ns).
    bound : callable
        Returns a bound (ns) on the cost of every plan, for methods that prove none (None if
        there is none to be had), and whether the deadline cut it short.
    adapt : callable, optional
        Returns a start plan with this problem's numbers, such as other sizes; it relies on nothing
        but the plan's type, and may raise an `InvalidPlanError`. The result is checked.
    refit : callable, optional
        Improves an adapted start plan in milliseconds, and returns what that proves. The plan has
        been checked, but may break a constraint, such as a memory limit.
    resumed : callable, optional
        Returns the methods that go on from a start plan of the problem.
    form : type
        What plans are.
    **control
        See `planner.deadline.Control`.

    Raises
    ------
    InvalidInputError
        If the method is unknown, the time limit is none, the method refuses the problem, or there
        is nothing to replan.
    RuntimeError
        If the method's plan is none: a fault of the method; a `PluginError` of another package's.
    """
    start, cancel = control.get("start"), control.get("cancel")
    if start is not None and not isinstance(start, form):
        raise InvalidInputError("start", f"expected a plan of the problem, got {shown(start)}")
    if method == REPLAN:
        if start is None:
            raise InvalidInputError("start", f"missing: method {REPLAN} begins with a plan")
        methods = {REPLAN: partial(_started, start, judge, adapt, refit)}
        bound = _nothing
    known_method(method, methods)
    offers = Offers(problem, judge, control.get("on_progress"))

    def offered(plan: PlanT, lower_bound: int | Fraction | None) -> None:
        with suppress(TimeUpError):  # a plan that there is no time to check is none
            offers.consider(plan, lower_bound, deadline=deadline)

    deadline = deadline_in(time_limit, cancel, offered if offers.listening else None)
    begin = time.perf_counter()
    warnings: tuple[str, ...] = ()
    if start is not None and method != REPLAN:
        refused = "the time limit passed before it was checked"
        with suppress(TimeUpError):
            old = _started(start, judge, adapt, refit, problem, deadline)
            if old.infeasibility is not None:
                refused = old.infeasibility.reason
            elif old.plan is not None:
                error = offers.consider(old.plan, old.lower_bound, REPLAN, deadline)
                refused = "" if error is None else _unfit(error).reason
                if error is None and resumed is not None:
                    methods = resumed(old.plan)
        if refused:
            warnings = (f"start_plan is ignored: {refused}",)
    try:
        outcome = methods[method](problem, deadline)
        runtime = time.perf_counter() - begin
        outcome = replace(outcome, method=outcome.method or method)
        result = judged(problem, outcome, runtime, deadline, judge=judge, bound=bound)
    except TimeUpError:  # also while the plan is checked: unchecked it is none
        result = Result(method, None, None, None, time.perf_counter() - begin, True, OUT_OF_TIME)
    return replace(offers.end(result, deadline, bound), warnings=warnings)


def _nothing(_: Any, __: Any, ___: Deadline) -> tuple[None, bool]:
    return None, False


def _started(
    start: PlanT,
    judge: Judge[ProblemT, PlanT, EvaluationT],
    adapt: Adapt[ProblemT, PlanT] | None,
    refit: Refit[ProblemT, PlanT] | None,
    problem: ProblemT,
    deadline: Deadline,
) -> Outcome[PlanT]:
    """Return the plan made of a start plan, or why that does not fit the problem.

    The one place that takes start plans, which may be of any other problem: nothing that relies on
    a plan sees one before the family's checker has. Without `refit`, whoever takes the outcome
    checks it.
    """
    try:
        plan = start if adapt is None else adapt(problem, start)
        if refit is None:
            return Outcome(plan)
        with suppress(BrokenConstraintError):  # such as a memory limit: a smaller change may do
            judge(problem, plan, deadline)
        return refit(problem, plan, deadline)
    except InvalidInputError as error:
        return Outcome(None, infeasibility=_unfit(error))


def _unfit(error: InvalidInputError) -> Infeasibility:
    return Infeasibility(f"the start plan does not fit this problem ({error})", ("start_plan",))


def judged(
    problem: ProblemT,
    outcome: Outcome[PlanT],
    runtime_s: float,
    deadline: Deadline,
    *,
    judge: Judge[ProblemT, PlanT, EvaluationT],
    bound: Bound[ProblemT, PlanT],
) -> Result[PlanT, EvaluationT]:
    """Check, price and bound what a method answered in so many seconds; see `solve_with`.

    Raises
    ------
    RuntimeError
        If the method's plan is none: a fault of the method.
    """
    method, plan, timed_out = outcome.method, outcome.plan, outcome.timed_out
    if plan is None:
        reason = outcome.infeasibility
        return Result(method, None, None, None, runtime_s, timed_out, reason)
    try:
        evaluation, objective = judge(problem, plan, deadline)
    except InvalidInputError as error:
        if method == REPLAN:
            return Result(method, None, None, None, runtime_s, timed_out, _unfit(error))
        if not isinstance(error, InvalidPlanError):
            raise
        fault = PluginError if is_plugged(method) else RuntimeError
        raise fault(f"method {method} made no plan: {error}") from error
    lowest = outcome.lower_bound
    if lowest is None:
        lowest, cut = bound(problem, plan, deadline)
        timed_out |= cut
    # Objectives are rounded up to whole nanoseconds too, so it stays a bound.
    whole = None if lowest is None else -int(-lowest // 1)
    return Result(method, plan, objective, whole, runtime_s, timed_out, evaluation=evaluation)


def named(name: str, method: Method[ProblemT, PlanT]) -> Method[ProblemT, PlanT]:
    """Return a method whose answers say that the method of this name made them."""

    def answered(problem: ProblemT, deadline: Deadline) -> Outcome[PlanT]:
        return replace(method(problem, deadline), method=name)

    return answered


def loaded(module: str, name: str, library: str = "") -> Method[Any, Any]:
    """Return a method whose module, and the libraries it needs, are imported when it is used.

    Parameters
    ----------
    module, name : str
        Where the method is.
    library : str
        The solver it needs, for the error if that cannot be imported.
    """

    def method(problem: Any, deadline: Deadline) -> Outcome[Any]:
        try:
            solve: Method[Any, Any] = getattr(import_module(module), name)
        except ImportError as error:
            if not library:
                raise
            raise NotApplicableError("method", f"{library} cannot be loaded: {error}") from None
        return solve(problem, deadline)

    return method


def with_plugins(
    family: str, methods: Mapping[str, Method[ProblemT, PlanT]]
) -> dict[str, Method[ProblemT, PlanT]]:
    """Return a family's methods and those that other packages add.

    Parameters
    ----------
    family : str
        Its name.
    methods : mapping of str to method
        Its own.
    """
    others = plugged(f"methods.{family}").items()
    added = {name: _unproven(name, run) for name, run in others if name not in methods}
    return {**methods, **added}


def _unproven(name: str, run: Callable[..., Any]) -> Method[Any, Any]:
    """Return another package's method, of which plans count and proofs do not."""

    def method(problem: Any, deadline: Deadline) -> Outcome[Any]:
        outcome = run(problem, deadline)
        if not isinstance(outcome, Outcome):
            raise PluginError(f"method {name}: expected an Outcome, got {shown(outcome)}")
        return replace(outcome, lower_bound=None, method=name)

    return method


def concrete(methods: Iterable[str]) -> list[str]:
    """Return the names of methods without `auto`, which chooses one of them."""
    return [name for name in methods if name != "auto"]


def known_method(method: Any, known: Iterable[str], path: str = "method") -> str:
    """Return `method` if it is one of the `known` names; `path` is where it stands.

    Raises
    ------
    InvalidInputError
        If it is not; the message lists them and names the closest one.
    """
    names = list(known)
    if isinstance(method, str) and method in names:
        return method
    hint = did_you_mean(method, names)
    raise InvalidInputError(
        path,
        f"expected one of {', '.join(names)}, got {shown(method)}{hint and f' ({hint})'}",
    )


def deadline_in(
    time_limit: Any,
    cancel: Cancel | None = None,
    offered: Callable[[Any, int | Fraction | None], object] | None = None,
) -> Deadline:
    """Return the deadline a time limit in seconds sets, and a cancel; None sets none.

    Raises
    ------
    InvalidInputError
        If it is no number above 0.
    """
    number = isinstance(time_limit, int | float) and not isinstance(time_limit, bool)
    if time_limit is not None and not (number and time_limit > 0):
        raise InvalidInputError("time_limit_s", f"expected a number > 0, got {shown(time_limit)}")
    return Deadline(time_limit, cancel, offered)
