"""Plans of whole iterations if the numbers are others: their regret, and whether DDP is as good.

Problem: see `planner.regret` and `planner.advice`. This is what they need to know of the family:
start-ups are those of NICs, of links within hosts and of further messages; bandwidth that of NICs,
of links within hosts and of what machines share. DDP travels by the best algorithm that today's
libraries have, as in `planner.iteration.rules`.

Guarantee, complexity: theirs. Source: own.
"""

from dataclasses import replace
from functools import partial

from planner.advice import Advice, advice
from planner.caramel.baselines import ddp
from planner.deadline import Deadline
from planner.iteration.evaluation import Evaluation, evaluate
from planner.iteration.plan import Plan
from planner.iteration.problem import Problem
from planner.iteration.rules import by_gradients
from planner.iteration.sensitivity import changed
from planner.iteration.solver import by_rule, solve
from planner.regret import Progress, Regret, regrets
from planner.results import Result
from planner.scenarios import Scenario, graph_under

__all__ = ["advised", "regretted", "under"]


def under(problem: Problem, scenario: Scenario) -> Problem:
    """Return the problem with the numbers of a scenario."""
    cluster = changed(problem.cluster, "startup", scenario.startup)
    cluster = changed(cluster, "bandwidth", scenario.bandwidth)
    return replace(problem, graph=graph_under(problem.graph, scenario), cluster=cluster)


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
        rule = by_gradients(partial(ddp, limits=limits))
        plan = by_rule("ddp", rule)(problem, deadline).plan
        return None if plan is None else _price(problem, plan)

    return advice(result, price, deadline)


def _price(problem: Problem, plan: Plan) -> int:
    return evaluate(problem, plan).iteration_ns
