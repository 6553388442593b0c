"""Methods by name, and `solve`."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias, Unpack

from planner.deadline import Control, Deadline
from planner.drizzle.closed_form import solve_exact
from planner.drizzle.evaluation import Evaluation, check, evaluate
from planner.drizzle.problem import Plan, Problem
from planner.drizzle.refit import adapt, refit
from planner.methods import Method as AnyMethod
from planner.methods import named, solve_with, with_plugins
from planner.results import Result

__all__ = ["METHODS", "Method", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

METHODS: Mapping[str, Method] = with_plugins(
    "drizzle",
    {"auto": named("exact", solve_exact), "exact": solve_exact},
)


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float | None = None,
    **control: Unpack[Control[Plan]],
) -> Result[Plan, Evaluation]:
    """Choose how many iterations of `problem` are scheduled at once.

    Parameters
    ----------
    problem : Problem
        What to schedule.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds; the closed form needs far less.
    **control
        See `planner.Control`.

    Returns
    -------
    Result
        The plan with the shortest group, checked and priced independently of the method, with a
        proven bound; or the reason why the problem is infeasible.

    Raises
    ------
    InvalidInputError
        If the method is unknown, or the time of the group does not fit in 63 bits.
    """
    return solve_with(
        METHODS,
        problem,
        method,
        time_limit,
        judge=_judge,
        bound=_bound,
        adapt=adapt,
        refit=refit,
        form=Plan,
        **control,
    )


def _judge(problem: Problem, plan: Plan, _: Deadline) -> tuple[Evaluation, int]:
    check(problem, plan)
    evaluation = evaluate(problem, plan)
    return evaluation, evaluation.group_ns


def _bound(problem: Problem, _: Plan, __: Deadline) -> tuple[Fraction, bool]:
    """Return the time of a group of one iteration, the shortest group."""
    return problem.compute_ns + problem.always_ns + problem.once_ns, False
