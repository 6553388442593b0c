"""Plans of gradient transfers if the numbers are others: their regret, and whether DDP is as good.

Problem: see `planner.regret` and `planner.advice`. This is what they need to know of the family.

Guarantee, complexity: theirs. Source: own.
"""

from dataclasses import replace

from planner.advice import Advice, advice
from planner.caramel.baselines import ddp
from planner.caramel.evaluation import Evaluation, lasting_ns
from planner.caramel.problem import Plan, Problem
from planner.caramel.solver import solve
from planner.deadline import Deadline
from planner.regret import Progress, Regret, regrets
from planner.results import Result
from planner.scenarios import Scenario, cost_under, graph_under

__all__ = ["advised", "regretted", "under"]


def under(problem: Problem, scenario: Scenario) -> Problem:
    """Return the problem with the numbers of a scenario."""
    graph, cost = graph_under(problem.graph, scenario), cost_under(problem.cost, scenario)
    return replace(problem, graph=graph, cost=cost)


def regretted(
    problem: Problem, plan: Plan, deadline: Deadline, progress: Progress | None = None
) -> tuple[Regret, ...]:
    """Return the regret of a plan; see `planner.regret.regrets`."""
    return regrets(problem, plan, deadline, progress, under=under, price=_price, solve=solve)


def advised(
    problem: Problem, result: Result[Plan, Evaluation], deadline: Deadline
) -> Advice | None:
    """Return whether to keep DDP; None if it does not apply, or there is no time."""

    def price(limits: tuple[int, int]) -> int | None:
        plan = ddp(problem, deadline, limits).plan
        return None if plan is None else _price(problem, plan)

    return advice(result, price, deadline)


def _price(problem: Problem, plan: Plan) -> int:
    return lasting_ns(problem, plan)
