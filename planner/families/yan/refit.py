"""Warm start: the ranking of an old plan, priced for the changed problem.

Guarantee: the best of the first `RANKED` configurations that are still valid; no bound. Complexity:
O(RANKED · segments). Source: own.
"""

from dataclasses import replace

from planner.families.yan.configuration import Plan, Ranked
from planner.families.yan.model import estimate
from planner.families.yan.problem import Problem
from planner.model.errors import InvalidInputError, InvalidPlanError

RANKED = 4
"""Configurations priced again."""


def adapt(problem: Problem, plan: Plan) -> Plan:
    """Return an old plan with the problem's prices.

    InvalidPlanError if no configuration is valid.
    """
    ranking: list[Ranked] = []
    refused: InvalidInputError | None = None
    ranked = dict.fromkeys(known.configuration for known in plan.ranking[:RANKED])
    for configuration in ranked:
        try:
            epoch = estimate(problem, configuration).epoch
        except InvalidInputError as error:
            refused = error
            continue
        ranking.append(Ranked(configuration, epoch))
    if not ranking:
        raise InvalidPlanError("ranking", f"none can be run: {refused}")
    ranking.sort(key=lambda known: known.epoch)
    best = ranking[0].configuration
    return replace(plan, configuration=best, ranking=tuple(ranking), any_mapping_bound_ns=None)
