"""The methods by name, and how their plans are judged.

`auto` is `exact` for small graphs, and `search` beyond.
"""

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias, Unpack

from planner.deadline import Control, Deadline
from planner.methods import Method as AnyMethod
from planner.methods import Outcome, loaded, named, solve_with, with_plugins
from planner.overlap.bounds import lower_bound_ns
from planner.overlap.checker import check
from planner.overlap.evaluation import Evaluation
from planner.overlap.plan import Plan
from planner.overlap.problem import Problem
from planner.overlap.search import greedy, own, search
from planner.results import Result

__all__ = ["METHODS", "Method", "small", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

_SMALL = 14
"""Nodes up to which `auto` is exact."""

_exact = loaded("planner.overlap.exact", "solve_exact", "OR-Tools")


def small(problem: Problem) -> bool:
    """Return whether `exact` takes a problem."""
    from planner.overlap.exact import applicable

    return applicable(problem)


def _auto(problem: Problem, deadline: Deadline, *, start: Plan | None = None) -> Outcome[Plan]:
    if len(problem.nodes) <= _SMALL and small(problem):
        return named("exact", _exact)(problem, deadline)
    return named("search", partial(search, start=start))(problem, deadline)


METHODS: Mapping[str, Method] = with_plugins(
    "overlap",
    {
        "auto": _auto,
        "search": search,
        "greedy": greedy,
        "own_order": own,
        "exact": _exact,
    },
)
"""Every method by the name requests use."""


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    time_limit: float | None = None,
    **control: Unpack[Control[Plan]],
) -> Result[Plan, Evaluation]:
    """Order a graph, and merge its collectives.

    Parameters
    ----------
    problem : Problem
        The graph.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds, after which `search` and `exact` return the best they have.
    **control
        See `planner.Control`. `search` goes on from a plan to start with.

    Returns
    -------
    Result
        The plan, checked and priced outside the method, with a bound on every order and merging.

    Raises
    ------
    InvalidInputError
        If the method is unknown, or cannot tell whether there is an order within the memory.
    """
    return solve_with(
        METHODS,
        problem,
        method,
        time_limit,
        judge=_judge,
        bound=_bound,
        resumed=_resumed,
        form=Plan,
        **control,
    )


def _resumed(start: Plan) -> Mapping[str, Method]:
    begun = {"auto": partial(_auto, start=start), "search": partial(search, start=start)}
    return {**METHODS, **begun}


def _judge(problem: Problem, plan: Plan, _: Deadline) -> tuple[Evaluation, int]:
    evaluation = check(problem, plan)
    return evaluation, evaluation.makespan_ns


def _bound(problem: Problem, _: Plan, deadline: Deadline) -> tuple[int, bool]:
    return lower_bound_ns(problem, deadline)
