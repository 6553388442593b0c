"""Batches if the numbers are others: their regret.

Problem: see `planner.regret`. This is what it needs to know of the family: computation of pushes is
that of the backward pass. Under the objective ``eq4`` a scenario in which the batches break Eq. 5
is left out.

Guarantee, complexity: its. Source: own.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from planner.deadline import Deadline
from planner.ibatch.evaluation import check, evaluate, objective_ns
from planner.ibatch.problem import Plan, Problem
from planner.ibatch.solver import solve
from planner.regret import Regret, regrets
from planner.scenarios import Scenario, cost_under, later

__all__ = ["regretted", "under"]


def under(problem: Problem, scenario: Scenario) -> Problem:
    """Return the problem with the numbers of a scenario."""
    times, spreads = problem.compute_ns, problem.spread_ns or (0,) * problem.layers
    if problem.direction == "pull":
        times = later(times, spreads, "forward", scenario)
    else:
        times = later(times[::-1], spreads[::-1], "backward", scenario)[::-1]
    other = replace(problem, compute_ns=times)
    if problem.cost is not None:
        return replace(other, cost=cost_under(problem.cost, scenario))
    assert problem.startup_ns is not None
    assert problem.transfer_ns is not None
    return replace(
        other,
        startup_ns=round(problem.startup_ns * scenario.startup),
        transfer_ns=_times(problem.transfer_ns, 1 / scenario.bandwidth),
    )


def regretted(problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Regret, ...]:
    """Return the regret of a plan; see `planner.regret.regrets`."""

    def price(other: Problem, kept: Plan) -> int:
        check(other, kept)
        return objective_ns(other, evaluate(other, kept))

    return regrets(problem, plan, deadline, under=under, price=price, solve=solve)


def _times(times: Sequence[int], factor: Fraction) -> tuple[int, ...]:
    return tuple(round(time * factor) for time in times)
