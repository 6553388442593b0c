"""The methods by name, and the way every plan takes: made, checked, priced, bounded.

`auto` is `exact` where all machines are alike, else `ordered`.
"""

import time
from collections.abc import Callable, Mapping
from fractions import Fraction

from planner.deadline import Deadline
from planner.errors import InvalidPlanError
from planner.methods import deadline_in, known_method
from planner.results import Result
from planner.validation import total
from planner.yan.configuration import Outcome, Plan
from planner.yan.model import estimate
from planner.yan.problem import Problem

__all__ = ["METHODS", "Method", "solve"]

Method = Callable[[Problem, Deadline], Outcome]


def _auto(problem: Problem, deadline: Deadline) -> Outcome:
    return (_exact if problem.uniform else _ordered)(problem, deadline)


def _exact(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.exact import exact

    return exact(problem, deadline)


def _ordered(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.ordered import ordered

    return ordered(problem, deadline)


def _greedy(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.greedy import greedy

    return greedy(problem, deadline)


def _brute_force(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.brute_force import brute_force

    return brute_force(problem, deadline)


def _data_parallel(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.baselines import data_parallel

    return data_parallel(problem, deadline)


def _model_parallel(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.baselines import model_parallel

    return model_parallel(problem, deadline)


def _median(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.spread import median

    return median(problem, deadline)


def _worst(problem: Problem, deadline: Deadline) -> Outcome:
    from planner.yan.spread import worst

    return worst(problem, deadline)


METHODS: Mapping[str, Method] = {
    "auto": _auto,
    "exact": _exact,
    "greedy": _greedy,
    "ordered": _ordered,
    "brute_force": _brute_force,
    "data_parallel": _data_parallel,
    "model_parallel": _model_parallel,
    "median": _median,
    "worst": _worst,
}
"""Every method by the name requests use."""


def solve(
    problem: Problem, *, method: str = "auto", time_limit: float | None = None
) -> Result[Plan]:
    """Plan how a job is spread over machines.

    Parameters
    ----------
    problem : Problem
        The network, the machines and the options.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.

    Returns
    -------
    Result
        The plan, checked and priced outside the method. The bound of `exact` and `brute_force`
        holds for the canonical mapping, the others' for every mapping.

    Raises
    ------
    InvalidInputError
        If the method is unknown or does not apply to the problem.
    """
    known_method(method, METHODS)
    deadline = deadline_in(time_limit)
    begin = time.perf_counter()
    outcome = METHODS[method](problem, deadline)
    runtime = time.perf_counter() - begin
    if outcome.plan is None:
        return Result(method, None, None, None, runtime, infeasibility=outcome.infeasibility)
    try:
        prices = [estimate(problem, one.configuration).epoch for one in outcome.plan.ranking]
    except InvalidPlanError as error:
        raise RuntimeError(f"method {method} made no plan: {error}") from error
    if prices != [one.epoch for one in outcome.plan.ranking] or prices != sorted(prices):
        raise RuntimeError(f"method {method} priced its plans wrongly, or not in order")
    objective = total(_ceil(prices[0]), "constants", "the time of an epoch")
    bound = outcome.lower_bound
    return Result(
        method,
        outcome.plan,
        objective,
        None if bound is None else _ceil(bound),
        runtime,
        outcome.timed_out,
    )


def _ceil(time: Fraction) -> int:
    return -int(-time // 1)
