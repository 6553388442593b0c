"""Methods by name, and `solve`.

`auto` is `rotated`; the lower bound says where it is optimal.
"""

from collections.abc import Mapping
from typing import TypeAlias, Unpack

from planner.bigdl.bounds import lower_bound_ns
from planner.bigdl.checker import check
from planner.bigdl.evaluation import Evaluation, evaluate
from planner.bigdl.methods import (
    reduce,
    rotated,
    same_order,
    tree_aggregate,
    tree_aggregate_torrent,
)
from planner.bigdl.plan import Plan
from planner.bigdl.problem import Problem
from planner.bigdl.refit import adapt
from planner.deadline import Control, Deadline
from planner.methods import Method as AnyMethod
from planner.methods import named, solve_with, with_plugins
from planner.results import Result

__all__ = ["METHODS", "Method", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

METHODS: Mapping[str, Method] = with_plugins(
    "bigdl",
    {
        "auto": named("rotated", rotated),
        "rotated": rotated,
        "same_order": same_order,
        "reduce": reduce,
        "tree_aggregate": tree_aggregate,
        "tree_aggregate_torrent": tree_aggregate_torrent,
    },
)


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float | None = None,
    **control: Unpack[Control[Plan]],
) -> Result[Plan, Evaluation]:
    """Plan how gradients are summed and weights handed out.

    Parameters
    ----------
    problem : Problem
        What to synchronise.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds; every method is a formula and needs far less.
    **control
        See `planner.Control`.

    Returns
    -------
    Result
        The plan, checked and priced independently of the method, with a lower bound over all
        algorithms.

    Raises
    ------
    InvalidInputError
        If the method is unknown, or times do not fit in 63 bits.
    """
    return solve_with(
        METHODS,
        problem,
        method,
        time_limit,
        judge=_judge,
        bound=_bound,
        adapt=adapt,
        form=Plan,
        **control,
    )


def _judge(problem: Problem, plan: Plan, _: Deadline) -> tuple[Evaluation, int]:
    check(problem, plan)
    evaluation = evaluate(problem, plan)
    return evaluation, evaluation.objective_ns


def _bound(problem: Problem, _: Plan, __: Deadline) -> tuple[int, bool]:
    return lower_bound_ns(problem), False
