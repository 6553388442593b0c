"""All possible batches of a problem, for the models that choose among them.

A batch of layers a … b-1 is an *arc* from a to b; a plan is a path of arcs from 0 to L.
Complexity: O(L²) arcs.
"""

from collections.abc import Iterable
from typing import NamedTuple

from planner.errors import NotApplicableError
from planner.ibatch.problem import Problem

__all__ = ["MAX_LAYERS", "Arc", "all_arcs", "path_through"]

MAX_LAYERS = 400
"""With more layers, models over all batches no longer fit in a reasonable time and memory."""


class Arc(NamedTuple):
    """One possible batch, with its times in nanoseconds."""

    start: int
    stop: int
    communication: int
    computation: int


def all_arcs(problem: Problem, method: str) -> list[Arc]:
    """Return every batch within the cap.

    Raises
    ------
    NotApplicableError
        If there are more than `MAX_LAYERS` layers; `method` is who asks.
    """
    if problem.layers > MAX_LAYERS:
        raise NotApplicableError(
            "method",
            f"{method} takes up to {MAX_LAYERS} layers, got {problem.layers}; "
            "method exact has no such limit",
        )
    computed = problem.compute_prefix
    return [
        Arc(start, stop, problem.transfer_time(start, stop), computed[stop] - computed[start])
        for start in range(problem.layers)
        for stop in range(start + 1, problem.reach(start) + 1)
    ]


def path_through(chosen: Iterable[Arc]) -> list[int]:
    """Return the boundaries of a path given as its arcs in any order."""
    return [0, *sorted(arc.stop for arc in chosen)]
