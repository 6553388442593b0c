"""The fsdp family: its methods by name, and how plans are checked, priced and bounded.

`auto` is `exact` up to `SMALL` layers, which takes seconds at most, and `search` otherwise.
"""

from fractions import Fraction
from typing import TypeAlias

from planner.deadline import Deadline
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
from planner.results import Infeasibility
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named
from planner.units import format_bytes

__all__ = ["FSDP", "METHODS", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

SMALL = 5
"""Longest chain that `auto` solves exactly."""


def _rule(name: str, run: Rule) -> Method:
    """Return a baseline method; its plan may not fit into memory."""

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


class _Fsdp(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "fsdp", Plan, tuple(RULES)
    own_methods = {
        "auto": _auto,
        "exact": exact,
        "search": search,
        **{name: _rule(name, run) for name, run in RULES.items()},
    }

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.iteration_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Fraction, bool]:
        return lower_bound(problem, deadline, enough_ns=iteration_ns(problem, plan))

    def improve(self, problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
        return refit(problem, plan, deadline)


FSDP = _Fsdp()
METHODS = FSDP.methods
solve = FSDP.solve
