"""The methods by name, and the way every plan takes: made, checked, priced, bounded.

`auto` is `exact` where all machines are alike, else `ordered`.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib import import_module

from planner.deadline import Deadline, TimeUpError
from planner.methods import attempt, plan_of_method
from planner.results import Result
from planner.validation import total
from planner.yan.configuration import Outcome, Plan
from planner.yan.model import estimate
from planner.yan.problem import Problem

__all__ = ["METHODS", "Method", "solve"]

Method = Callable[[Problem, Deadline], Outcome]


def _loaded(module: str, name: str) -> Method:
    """Return a method whose module, and the libraries it needs, are loaded when it is used."""

    def method(problem: Problem, deadline: Deadline) -> Outcome:
        try:
            found = getattr(import_module(f"planner.yan.{module}"), name)(problem, deadline)
        except TimeUpError:  # before anything was found
            found = import_module("planner.yan.quick").quick(problem)
        outcome: Outcome = found
        return outcome

    return method


def _auto(problem: Problem, deadline: Deadline) -> Outcome:
    return METHODS["exact" if problem.uniform else "ordered"](problem, deadline)


METHODS: Mapping[str, Method] = {
    "auto": _auto,
    "exact": _loaded("exact", "exact"),
    "greedy": _loaded("greedy", "greedy"),
    "ordered": _loaded("ordered", "ordered"),
    "brute_force": _loaded("brute_force", "brute_force"),
    "data_parallel": _loaded("baselines", "data_parallel"),
    "model_parallel": _loaded("baselines", "model_parallel"),
    "median": _loaded("spread", "median"),
    "worst": _loaded("spread", "worst"),
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
    outcome, runtime, _ = attempt(METHODS, method, problem, time_limit)
    if outcome.plan is None:
        return Result(method, None, None, None, runtime, outcome.timed_out, outcome.infeasibility)
    with plan_of_method(method):
        prices = [estimate(problem, one.configuration).epoch for one in outcome.plan.ranking]
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
