"""Tie-breaking by local search: less delay-sensitive loads of equal iteration time.

Method: `planner.caramel.descent` under one delay scenario (`strain`) after the other
(`planner.robustness`). A change must not worsen the iteration or an earlier scenario.
Guarantee: never longer and never more sensitive than the start. Only `planner.caramel.subsets`
finds the optimum.
Complexity: a fixed budget of prices per scenario.
Source: own.
"""

from collections.abc import Sequence

from planner.caramel.descent import descend
from planner.caramel.loads import Load, LoadPricer
from planner.deadline import Deadline
from planner.robustness import NOMINAL, STRAINS, Limit

__all__ = ["steadied"]


def steadied(
    pricer: LoadPricer, loads: Sequence[Load], budget: int, deadline: Deadline
) -> list[Load]:
    """Return loads that last no longer and are at most as sensitive to delays.

    `budget` limits the prices per delay scenario.
    """
    if not pricer.looks(budget, loads):
        return list(loads)
    value, best = pricer.iteration_ns(loads), list(loads)
    limits = [Limit(NOMINAL, value)]
    for strain in STRAINS:
        target = max(min(strain) * value, strain.compute * pricer.windows.compute_ns)
        best = descend(pricer, best, target, budget, deadline, strain, limits)
        limits.append(Limit(strain, pricer.under(strain, best)))
    return best
