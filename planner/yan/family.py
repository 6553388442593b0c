"""The methods by name, and how their plans are judged.

`auto` is `exact` where all machines are alike, else `ordered`.
"""

from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias

from planner.deadline import Deadline, TimeUpError
from planner.errors import InvalidPlanError
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, loaded
from planner.validation import total
from planner.yan.configuration import Plan
from planner.yan.model import Estimate, estimate
from planner.yan.problem import Problem
from planner.yan.refit import adapt

__all__ = ["METHODS", "YAN", "Method", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]


def _hasty(module: str, name: str) -> Method:
    """Return a method that falls back to a quick plan if it had no time to find any."""
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
    return replace(YAN.methods[method](problem, deadline), method=method)


def _checked(problem: Problem, plan: Plan) -> Estimate:
    """Price every configuration again, and return the price of the first.

    A plan says its whole ranking.
    """
    priced = cache(partial(estimate, problem))  # a request may ask for one configuration often
    prices = [priced(ranked.configuration).epoch for ranked in plan.ranking]
    if prices != [ranked.epoch for ranked in plan.ranking] or prices != sorted(prices):
        raise InvalidPlanError("ranking", "priced wrongly, or not in order")
    return priced(plan.ranking[0].configuration)


class _Yan(Family[Problem, Plan, Estimate]):
    name, plan_type, baselines = "yan", Plan, ("data_parallel", "model_parallel")
    own_methods = {
        "auto": _auto,
        "exact": _hasty("exact", "exact"),
        "greedy": _hasty("greedy", "greedy"),
        "ordered": _hasty("ordered", "ordered"),
        "data_parallel": _hasty("baselines", "data_parallel"),
        "model_parallel": _hasty("baselines", "model_parallel"),
    }

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        _checked(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Estimate:
        return estimate(problem, plan.ranking[0].configuration)

    def priced(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Estimate, int]:
        evaluation = _checked(problem, plan)  # no configuration is priced twice
        return evaluation, self.objective(problem, evaluation)

    def objective(self, problem: Problem, evaluation: Estimate) -> int:
        return total(-int(-evaluation.epoch // 1), "constants", "the time of an epoch")

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[None, bool]:
        """Return none: every method proves a bound, unless there was no time for it."""
        return None, False

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        return adapt(problem, plan)


YAN = _Yan()
METHODS = YAN.methods
solve = YAN.solve
