"""Plans of a graph: an order of its nodes, and which collectives are one transfer."""

from dataclasses import dataclass

from planner.overlap.problem import Problem

__all__ = ["Plan", "own_order"]


@dataclass(frozen=True, slots=True)
class Plan:
    """In which order the rank issues what.

    Parameters
    ----------
    order : tuple of int
        Every node once. The starts of merged collectives stand together, and so do their waits.
    merged : tuple of tuples of int
        Collectives of one kind that are one transfer, two at least each; the others go alone.
    """

    order: tuple[int, ...]
    merged: tuple[tuple[int, ...], ...] = ()


def own_order(problem: Problem) -> Plan:
    """Return the order in which the graph is listed, with nothing merged."""
    return Plan(tuple(range(len(problem.nodes))))
