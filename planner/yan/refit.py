"""An old plan as one of a problem whose numbers have changed: its ranking, priced again.

Guarantee: the best of the first `RANKED` configurations of the old ranking that can still be run;
nothing is proved. Complexity: O(RANKED · segments). Source: own.
"""

from dataclasses import replace

from planner.deadline import Deadline
from planner.errors import InvalidInputError, InvalidPlanError
from planner.methods import Outcome
from planner.yan.configuration import Plan, Ranked
from planner.yan.model import estimate
from planner.yan.problem import Problem

__all__ = ["refit"]

RANKED = 4
"""Configurations priced again."""


def refit(problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
    """Return an old plan, made one of the problem.

    Raises
    ------
    InvalidPlanError
        If none of its configurations can be run.
    """
    ranking: list[Ranked] = []
    refused: InvalidInputError | None = None
    for known in plan.ranking[:RANKED]:
        if ranking and deadline.passed:
            break
        try:
            epoch = estimate(problem, known.configuration).epoch
        except InvalidInputError as error:
            refused = error
            continue
        ranking.append(Ranked(known.configuration, epoch))
    if not ranking:
        raise InvalidPlanError("ranking", f"none can be run: {refused}")
    ranking.sort(key=lambda known: known.epoch)
    best = ranking[0].configuration
    return Outcome(
        replace(plan, configuration=best, ranking=tuple(ranking), any_mapping_bound_ns=None)
    )
