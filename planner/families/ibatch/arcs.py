"""All feasible batches of a problem, as arcs: a batch of layers a … b-1 is an arc from a to b.

A plan is a path of arcs from 0 to L. Complexity: O(L²) arcs. Source: own.
"""

from typing import NamedTuple

from planner.families.ibatch.bounds import out_of_time
from planner.families.ibatch.problem import Plan, Problem
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Method, Outcome, loaded

MAX_LAYERS = 400
"""Limit for models over all batches: with more layers they take too much time and memory."""


class Arc(NamedTuple):
    """One possible batch, with its times (ns)."""

    start: int
    stop: int
    communication: int
    computation: int


def over_all_batches(name: str, library: str) -> Method[Problem, Plan]:
    """Return the method `name`: a program over all batches, solved by a library.

    It raises `NotApplicableError` for more than `MAX_LAYERS` layers.
    """
    search = loaded(f"planner.families.ibatch.{name}", f"solve_{name}", f"{name}: {library}")

    def method(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
        if problem.layers > MAX_LAYERS:
            raise NotApplicableError(
                "method",
                f"{name} takes up to {MAX_LAYERS} layers, got {problem.layers}; "
                "method exact has no such limit",
            )
        try:
            return search(problem, deadline)
        except TimeUpError:
            return out_of_time(problem)

    return method


def all_arcs(problem: Problem, deadline: Deadline) -> list[Arc]:
    """Return every batch within the cap; raise `TimeUpError` at the deadline."""
    computed = problem.compute_prefix
    arcs = []
    for start in range(problem.layers):
        deadline.check()
        arcs += [
            Arc(start, stop, problem.transfer_time(start, stop), computed[stop] - computed[start])
            for stop in range(start + 1, problem.reach(start) + 1)
        ]
    return arcs
