"""Methods by name, and `solve`.

`auto` is `exact` if all machines are equal, otherwise `ordered`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias, Unpack

from planner.deadline import Control, Deadline, TimeUpError
from planner.errors import InvalidPlanError
from planner.methods import Method as AnyMethod
from planner.methods import Outcome, loaded, solve_with, with_plugins
from planner.results import Result
from planner.validation import total
from planner.yan.configuration import Plan
from planner.yan.model import Estimate, estimate
from planner.yan.problem import Problem
from planner.yan.refit import adapt

__all__ = ["METHODS", "Method", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]


def _hasty(module: str, name: str) -> Method:
    """Return a method that falls back to a quick plan if it finds none in time."""
    run = loaded(f"planner.yan.{module}", name)

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        try:
            return run(problem, deadline)
        except TimeUpError:
            from planner.yan.quick import quick

            return quick(problem)

    return method


def _auto(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    method = "exact" if problem.uniform else "ordered"
    return replace(METHODS[method](problem, deadline), method=method)


METHODS: Mapping[str, Method] = with_plugins(
    "yan",
    {
        "auto": _auto,
        "exact": _hasty("exact", "exact"),
        "greedy": _hasty("greedy", "greedy"),
        "ordered": _hasty("ordered", "ordered"),
        "data_parallel": _hasty("baselines", "data_parallel"),
        "model_parallel": _hasty("baselines", "model_parallel"),
    },
)


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float | None = None,
    **control: Unpack[Control[Plan]],
) -> Result[Plan, Estimate]:
    """Plan how a job is distributed over machines.

    Parameters
    ----------
    problem : Problem
        The network, the machines and the options.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.
    **control
        See `planner.Control`.

    Returns
    -------
    Result
        The plan, checked and priced independently of the method. The bound of `exact` holds for the
        canonical mapping, the bounds of the other methods for every mapping.

    Raises
    ------
    InvalidInputError
        If the method is unknown or does not apply to the problem.
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


def _judge(problem: Problem, plan: Plan, _: Deadline) -> tuple[Estimate, int]:
    # a request may contain one configuration several times
    priced = cache(partial(estimate, problem))
    prices = [priced(ranked.configuration).epoch for ranked in plan.ranking]
    if prices != [ranked.epoch for ranked in plan.ranking] or prices != sorted(prices):
        raise InvalidPlanError("ranking", "priced wrongly, or not in order")
    best = priced(plan.ranking[0].configuration)
    return best, total(-int(-prices[0] // 1), "constants", "the time of an epoch")


def _bound(_: Problem, __: Plan, ___: Deadline) -> tuple[None, bool]:
    """Return no bound: every method proves one, unless its time was up."""
    return None, False
