"""The methods by name, and the way every plan takes: made, checked, priced, bounded."""

from collections.abc import Callable, Mapping

from planner.deadline import Deadline
from planner.drizzle.closed_form import solve_exact
from planner.drizzle.evaluation import check, evaluate
from planner.drizzle.problem import Outcome, Plan, Problem
from planner.drizzle.stages import triggers_of
from planner.methods import attempt, plan_of_method
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
    method = "exact" if method == "auto" else method
    outcome, runtime, _ = attempt(METHODS, method, problem, time_limit)
    if outcome.group_size is None:
        return Result(method, None, None, None, runtime, infeasibility=outcome.infeasibility)
    plan = Plan(outcome.group_size, triggers_of(tuple(problem.stages)))
    with plan_of_method(method):
        check(problem, plan)
    cost = evaluate(problem, plan).group_ns
    return Result(method, plan, cost, outcome.lower_bound_ns, runtime)
