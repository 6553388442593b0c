"""Plans of a compiled graph: an order of its nodes, and merged collectives."""

from dataclasses import dataclass

from planner.families.overlap.problem import Problem


@dataclass(frozen=True, slots=True)
class Plan:
    """The order in which the rank issues nodes, and merged collectives.

    Parameters
    ----------
    order : tuple of int
        Every node once. Starts of merged collectives are adjacent, and so are their waits.
    merged : tuple of tuples of int
        Collectives of one kind that are one transfer, at least two each; the others go alone.
    """

    order: tuple[int, ...]
    merged: tuple[tuple[int, ...], ...] = ()


def own_order(problem: Problem) -> Plan:
    """Return the graph's original order, with nothing merged."""
    return Plan(tuple(range(len(problem.nodes))))
