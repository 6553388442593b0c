"""Every method on one problem, the best first."""

from collections.abc import Callable, Sequence

from planner import comparison
from planner.ibatch.evaluation import Evaluation, evaluate
from planner.ibatch.problem import Plan, Problem
from planner.ibatch.solver import METHODS, solve

__all__ = ["Comparison", "Row", "compare"]

Row = comparison.Row[Plan, Evaluation]
Comparison = comparison.Comparison[Plan, Evaluation]


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
        Names to try; every one but `auto` (which is `exact`) by default.
    time_limit : float, optional
        Seconds for each method.
    progress : callable, optional
        Called with each method's name before it runs.
    """
    everything = [name for name in METHODS if name != "auto"]
    return comparison.compare_methods(
        everything if methods is None else methods,
        lambda method: solve(problem, method=method, time_limit=time_limit),
        lambda plan: evaluate(problem, plan),
        progress,
    )
