"""The methods by name, and the way every plan takes: made, checked, priced, bounded.

`auto` is `rotated`; its bound says where nothing can be faster.
"""

from collections.abc import Callable, Mapping

from planner.bigdl.bounds import lower_bound_ns
from planner.bigdl.checker import check
from planner.bigdl.evaluation import evaluate
from planner.bigdl.methods import (
    reduce,
    rotated,
    same_order,
    tree_aggregate,
    tree_aggregate_torrent,
)
from planner.bigdl.plan import Plan
from planner.bigdl.problem import Problem
from planner.deadline import Deadline
from planner.methods import attempt, plan_of_method
from planner.results import Result

__all__ = ["METHODS", "Method", "solve"]

Method = Callable[[Problem, Deadline], Plan]

METHODS: Mapping[str, Method] = {
    "auto": rotated,
    "rotated": rotated,
    "same_order": same_order,
    "reduce": reduce,
    "tree_aggregate": tree_aggregate,
    "tree_aggregate_torrent": tree_aggregate_torrent,
}
"""Every method by the name requests use."""


def solve(
    problem: Problem, *, method: str = "auto", time_limit: float | None = None
) -> Result[Plan]:
    """Plan how gradients are summed and weights handed out.

    Parameters
    ----------
    problem : Problem
        What to synchronise.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds; every method is a formula, and none comes near.

    Returns
    -------
    Result
        The plan, checked and priced outside the method, with a bound on every way to synchronise.

    Raises
    ------
    InvalidInputError
        If the method is unknown, or times do not fit in 63 bits.
    """
    method = "rotated" if method == "auto" else method
    plan, runtime, _ = attempt(METHODS, method, problem, time_limit)
    with plan_of_method(method):
        check(problem, plan)
    cost = evaluate(problem, plan).objective_ns
    return Result(method, plan, cost, lower_bound_ns(problem), runtime)
