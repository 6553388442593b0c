"""Every method on one problem, the best first."""

from collections.abc import Callable, Sequence

from planner import comparison
from planner.yan.configuration import Plan
from planner.yan.model import Estimate, estimate
from planner.yan.problem import Problem
from planner.yan.solver import METHODS, solve

__all__ = ["Comparison", "Row", "compare"]

Row = comparison.Row[Plan, Estimate]
Comparison = comparison.Comparison[Plan, Estimate]


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
        What to plan.
    methods : sequence of str, optional
        Names to try; by default every one but `auto`, or only that where configurations are given.
    time_limit : float, optional
        Seconds for each method.
    progress : callable, optional
        Called with each method's name before it runs.
    """
    if methods is None:
        methods = ["auto"] if problem.fixed else [name for name in METHODS if name != "auto"]
    return comparison.compare_methods(
        methods,
        lambda method: solve(problem, method=method, time_limit=time_limit),
        lambda plan: estimate(problem, plan.configuration),
        progress,
    )
