"""The methods by name, and how their plans are judged.

`auto` is `exact` where all machines are alike, else `ordered`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias

from planner.deadline import Deadline, TimeUpError
from planner.errors import InvalidInputError, InvalidPlanError
from planner.scenarios import Scenario, refuse_changes
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, loaded
from planner.validation import total
from planner.yan.configuration import Plan, Ranked
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

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        """Return the problem with other constants; those of computation are three."""
        from planner.yan.sensitivity import scaled

        reason = "an epoch of yan has no rank that falls behind, and constants have no spreads"
        refuse_changes(scenario, ("late", "spread", "part"), reason)
        if not scenario.startup:
            raise InvalidInputError("startup", "expected a number > 0: a transfer has a latency")
        for constant in ("muladd_ns", "activation_ns", "error_ns"):
            problem = scaled(problem, constant, scenario.computation)
        problem = scaled(problem, "latency_ns", scenario.startup)
        return scaled(problem, "nic_bits_per_s", scenario.bandwidth)

    def repriced(self, problem: Problem, plan: Plan) -> Plan:
        """Return the plan's own configuration with its price; the ranking holds no other."""
        price = estimate(problem, plan.configuration).epoch
        ranking = (Ranked(plan.configuration, price),)
        return replace(plan, ranking=ranking, any_mapping_bound_ns=None)

    def candidates(
        self, problem: Problem, plans: Sequence[Plan], deadline: Deadline
    ) -> Iterator[Plan]:
        """Yield the configurations that are ranked in any scenario."""
        for plan in plans:
            for ranked in plan.ranking:
                yield replace(plan, configuration=ranked.configuration, ranking=(ranked,))


YAN = _Yan()
METHODS = YAN.methods
solve = YAN.solve
