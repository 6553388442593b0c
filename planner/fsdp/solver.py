"""The methods by name, and how their plans are judged.

`auto` is `exact` for chains of up to `SMALL` layers, where that takes seconds at most, and `search`
for all others.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias, Unpack

from planner.deadline import Control, Deadline
from planner.fsdp.bounds import lower_bound
from planner.fsdp.checker import check, checked_peak
from planner.fsdp.evaluation import Evaluation, evaluate, iteration_ns
from planner.fsdp.exact import exact
from planner.fsdp.least import finest, too_little
from planner.fsdp.plan import Plan
from planner.fsdp.problem import Problem
from planner.fsdp.refit import refit
from planner.fsdp.rules import RULES, Rule, fitted
from planner.fsdp.search import search
from planner.methods import Method as AnyMethod
from planner.methods import Outcome, named, solve_with, with_plugins
from planner.results import Infeasibility, Result
from planner.units import format_bytes

__all__ = ["METHODS", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

SMALL = 5
"""Layers of the longest chain that `auto` solves exactly."""


def _rule(name: str, run: Rule) -> Method:
    """Return a method whose plan follows from a rule, and may not fit into memory."""

    def method(problem: Problem, _: Deadline) -> Outcome[Plan]:
        plan = fitted(problem, run)
        if plan is not None:
            return Outcome(plan)
        needed = min(
            checked_peak(problem, run(problem, mesh)) for mesh in range(len(problem.meshes))
        )
        reason = (
            f"the plan of {name} needs at least {format_bytes(needed)}, more than memory_bytes; "
            "method auto finds one that fits"
        )
        nothing = too_little(problem) or Infeasibility(reason, ("memory_bytes",))
        return Outcome(None, infeasibility=nothing)

    return method


def _auto(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    if len(finest(problem)) <= SMALL:
        return named("exact", exact)(problem, deadline)
    return named("search", search)(problem, deadline)


METHODS: Mapping[str, Method] = with_plugins(
    "fsdp",
    {
        "auto": _auto,
        "exact": exact,
        "search": search,
        **{name: _rule(name, run) for name, run in RULES.items()},
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
    """Plan an iteration.

    Parameters
    ----------
    problem : Problem
        What to plan.
    method : str
        A key of `METHODS`.
    time_limit : float, optional
        Seconds after which the best plan so far is returned.
    **control
        See `planner.Control`.

    Returns
    -------
    Result
        The plan, checked and priced outside the method, with a proven bound; or the least memory
        that would do.

    Raises
    ------
    InvalidInputError
        If the method is unknown or does not apply to the problem.
    """
    return solve_with(
        METHODS,
        problem,
        method,
        time_limit,
        judge=_judge,
        bound=_bound,
        refit=refit,
        form=Plan,
        **control,
    )


def _judge(problem: Problem, plan: Plan, _: Deadline) -> tuple[Evaluation, int]:
    check(problem, plan)
    evaluation = evaluate(problem, plan)
    return evaluation, evaluation.iteration_ns


def _bound(problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Fraction, bool]:
    return lower_bound(problem, deadline, enough_ns=iteration_ns(problem, plan))
