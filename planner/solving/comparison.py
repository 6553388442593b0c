"""Compare every method of a family on one problem."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic

from planner.model.errors import NotApplicableError
from planner.solving.deadline import Cancel
from planner.solving.result import EvaluationT, PlanT, ProblemT, Result


@dataclass(frozen=True, slots=True)
class Comparison(Generic[PlanT, EvaluationT]):
    """Results of several methods on one problem.

    Attributes
    ----------
    rows : tuple of Result
        By objective, best first; methods without a plan last.
    left_out : tuple of (str, str)
        Methods that do not apply, and why.
    """

    rows: tuple[Result[PlanT, EvaluationT], ...]
    left_out: tuple[tuple[str, str], ...]


def compare(
    problem: ProblemT,
    methods: Iterable[str],
    *,
    solve: Callable[..., Result[PlanT, EvaluationT]],
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    cancel: Cancel | None = None,
) -> Comparison[PlanT, EvaluationT]:
    """Solve one problem by several methods.

    Parameters
    ----------
    problem : object
        The problem.
    methods : iterable of str
        Names of the methods.
    solve : callable
        A family's `solve`: called with the problem, and `method` and `time_limit` by name.
    time_limit : float, optional
        Seconds for each method.
    progress : callable, optional
        Called with each method's name before it runs.
    cancel : Cancel, optional
        Once it is set, and there is a plan, no further methods run.
    """
    rows: dict[str, Result[PlanT, EvaluationT]] = {}
    left_out = []
    for method in methods:
        if rows and cancel is not None and cancel.is_set():
            break
        if progress:
            progress(method)
        try:
            result = solve(problem, method=method, time_limit=time_limit)
        except NotApplicableError as error:
            left_out.append((method, error.message))
            continue
        rows.setdefault(result.method, result)  # `auto` is one of the others
    best_first = sorted(
        rows.values(), key=lambda row: (row.objective_ns is None, row.objective_ns or 0)
    )
    return Comparison(tuple(best_first), tuple(left_out))
