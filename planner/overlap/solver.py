"""The methods by name, and how their plans are judged.

`auto` is `exact` for small graphs, and `search` beyond.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from planner.deadline import Deadline
from planner.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.methods import Method as AnyMethod
from planner.methods import Outcome, known_method, loaded, solve_with
from planner.overlap.bounds import lower_bound_ns
from planner.overlap.checker import check, check_structure
from planner.overlap.evaluation import Evaluation
from planner.overlap.plan import Plan
from planner.overlap.problem import Problem
from planner.overlap.search import Progress, greedy, own, search
from planner.results import Result

__all__ = ["METHODS", "Method", "replan", "small", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

_SMALL = 14
"""Nodes up to which `auto` is exact."""

_exact = loaded("planner.overlap.exact", "solve_exact", "OR-Tools")


def small(problem: Problem) -> bool:
    """Return whether `exact` takes a problem."""
    from planner.overlap.exact import applicable

    return applicable(problem)


def _auto(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    if len(problem.nodes) <= _SMALL and small(problem):
        return replace(_exact(problem, deadline), method="exact")
    return replace(search(problem, deadline), method="search")


METHODS: Mapping[str, Method] = {
    "auto": _auto,
    "search": search,
    "greedy": greedy,
    "own_order": own,
    "exact": _exact,
}
"""Every method by the name requests use."""


def solve(
    problem: Problem, *, method: str = "auto", time_limit: float | None = None
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

    Returns
    -------
    Result
        The plan, checked and priced outside the method, with a bound on every order and merging.

    Raises
    ------
    InvalidInputError
        If the method is unknown, or cannot tell whether there is an order within the memory.
    """
    return solve_with(METHODS, problem, method, time_limit, judge=_judge, bound=_bound)


def replan(
    problem: Problem,
    plan: Plan,
    *,
    method: str = "auto",
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Result[Plan, Evaluation]:
    """Search from a plan of the same graph, whose times may have changed since.

    Parameters
    ----------
    problem : Problem
        The graph.
    plan : Plan
        Where to begin.
    method : str
        `auto` or `search`, which is the same here.
    time_limit : float, optional
        Seconds.
    progress : callable, optional
        Called with each better plan, its makespan (ns), and the bound proven so far.

    Raises
    ------
    InvalidInputError
        If the plan is none of this graph, or the method begins with none.
    """
    if known_method(method, METHODS) not in {"auto", "search"}:
        raise NotApplicableError("method", f"{method} does not begin with a plan; search does")
    try:
        check_structure(problem, plan)
    except InvalidPlanError as error:
        raise InvalidInputError(f"plan.{error.path}", error.message) from None
    methods = {"search": partial(search, warm=plan, progress=progress)}
    return solve_with(methods, problem, "search", time_limit, judge=_judge, bound=_bound)


def _judge(problem: Problem, plan: Plan, _: Deadline) -> tuple[Evaluation, int]:
    evaluation = check(problem, plan)
    return evaluation, evaluation.makespan_ns


def _bound(problem: Problem, _: Plan, deadline: Deadline) -> tuple[int, bool]:
    return lower_bound_ns(problem, deadline)
