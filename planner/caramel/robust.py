"""Of lists of loads that last equally long, a more robust one (see `planner.robustness`).

Method: the local search of `planner.caramel.descent`, under one strain after the other. What makes
the iteration longer, or longer under a strain before, is no change.

Guarantee: never longer, never less robust than the start; the best of all only by
`planner.caramel.subsets`. Complexity: a fixed budget of prices for each strain. Source: own.
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
    """Return loads that last no longer than these and are at least as robust.

    Parameters
    ----------
    pricer : LoadPricer
        Prices them.
    loads : sequence of Load
        In transfer order.
    budget : int
        Prices to compute at most for each strain.
    deadline : Deadline
        When to stop.
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
