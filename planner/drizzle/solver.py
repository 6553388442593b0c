"""The methods by name, and the way every plan takes: made, checked, priced, bounded."""

import time
from collections.abc import Callable, Mapping

from planner.deadline import Deadline
from planner.drizzle.closed_form import solve_exact
from planner.drizzle.evaluation import check, evaluate
from planner.drizzle.problem import Outcome, Plan, Problem
from planner.drizzle.stages import triggers_of
from planner.errors import InvalidPlanError
from planner.methods import deadline_in, known_method
from planner.results import Result

__all__ = ["METHODS", "Method", "solve"]

Method = Callable[[Problem, Deadline], Outcome]

METHODS: Mapping[str, Method] = {"auto": solve_exact, "exact": solve_exact}
"""For each name requests use, the method."""


def solve(
    problem: Problem, *, method: str = "auto", time_limit: float | None = None
) -> Result[Plan]:
    """Choose how many iterations of `problem` are scheduled at once.

    Parameters
    ----------
    problem : Problem
        What to schedule.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds; the closed form needs none of them.

    Returns
    -------
    Result
        The plan whose group takes least time, checked and priced outside the method, with a proven
        bound; or what stands in its way.

    Raises
    ------
    InvalidInputError
        If the method is unknown, or the time of the group does not fit in 63 bits.
    """
    known_method(method, METHODS)
    method = "exact" if method == "auto" else method
    deadline = deadline_in(time_limit)
    begin = time.perf_counter()
    outcome = METHODS[method](problem, deadline)
    runtime = time.perf_counter() - begin
    if outcome.group_size is None:
        return Result(method, None, None, None, runtime, infeasibility=outcome.infeasibility)
    plan = Plan(outcome.group_size, triggers_of(tuple(problem.stages)))
    try:
        check(problem, plan)
    except InvalidPlanError as error:
        raise RuntimeError(f"method {method} made no plan: {error}") from error
    cost = evaluate(problem, plan).group_ns
    return Result(method, plan, cost, outcome.lower_bound_ns, runtime)
