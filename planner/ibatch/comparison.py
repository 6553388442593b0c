"""Every method on one problem, the best first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import NotApplicableError
from planner.ibatch.evaluation import Evaluation, evaluate
from planner.ibatch.problem import Plan, Problem
from planner.ibatch.solver import METHODS, solve
from planner.results import Result

__all__ = ["Comparison", "Row", "compare"]


@dataclass(frozen=True, slots=True)
class Row:
    """One method's result.

    Attributes
    ----------
    result : Result
        The plan, or why there is none.
    evaluation : Evaluation or None
        What the plan costs; None without a plan.
    """

    result: Result[Plan]
    evaluation: Evaluation | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every method on one problem.

    Attributes
    ----------
    rows : tuple of Row
        By objective, the best first; methods without a plan last.
    left_out : tuple of (str, str)
        Methods that do not apply, and why.
    """

    rows: tuple[Row, ...]
    left_out: tuple[tuple[str, str], ...]


def compare(
    problem: Problem,
    *,
    methods: Sequence[str] | None = None,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Solve `problem` by every method.

    Parameters
    ----------
    problem : Problem
        What to batch.
    methods : sequence of str, optional
        Names to try; every one by default.
    time_limit : float, optional
        Seconds for each method.
    progress : callable, optional
        Called with each method's name before it runs.
    """
    rows, left_out = [], []
    everything = [name for name in METHODS if name != "auto"]
    for method in everything if methods is None else methods:
        if progress:
            progress(method)
        try:
            result = solve(problem, method=method, time_limit=time_limit)
        except NotApplicableError as error:
            left_out.append((method, error.message))
            continue
        evaluation = None if result.plan is None else evaluate(problem, result.plan)
        rows.append(Row(result, evaluation))
    rows.sort(key=lambda row: (row.result.objective_ns is None, row.result.objective_ns or 0))
    return Comparison(tuple(rows), tuple(left_out))
