"""The overlap family: its methods by name, and how plans are checked, priced and bounded.

`auto` is `exact` for small graphs, otherwise `search`.
"""

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from planner.deadline import Deadline
from planner.overlap.bounds import lower_bound_ns
from planner.overlap.checker import check_memory, check_structure
from planner.overlap.evaluation import Evaluation, evaluate
from planner.overlap.plan import Plan
from planner.overlap.problem import Problem
from planner.overlap.search import greedy, own, search
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, loaded, named

__all__ = ["METHODS", "OVERLAP", "Method", "small", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]

_SMALL = 14
"""Most nodes for which `auto` is `exact`."""

_exact = loaded("planner.overlap.exact", "solve_exact", "OR-Tools")


def small(problem: Problem) -> bool:
    """Return whether `exact` can solve the problem."""
    from planner.overlap.exact import applicable

    return applicable(problem)


def _auto(problem: Problem, deadline: Deadline, *, start: Plan | None = None) -> Outcome[Plan]:
    if len(problem.nodes) <= _SMALL and small(problem):
        return named("exact", _exact)(problem, deadline)
    return named("search", partial(search, start=start))(problem, deadline)


class _Overlap(Family[Problem, Plan, Evaluation]):
    name, plan_type, baselines = "overlap", Plan, ("greedy", "own_order")
    own_methods = {
        "auto": _auto,
        "search": search,
        "greedy": greedy,
        "own_order": own,
        "exact": _exact,
    }

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check_structure(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        """Return the evaluation; raise `BrokenConstraintError` beyond the memory limit."""
        evaluation = evaluate(problem, plan)
        check_memory(problem, evaluation)
        return evaluation

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.makespan_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
        return lower_bound_ns(problem, deadline)

    def resume(self, problem: Problem, plan: Plan) -> Mapping[str, Method]:
        begun = {"auto": partial(_auto, start=plan), "search": partial(search, start=plan)}
        return {**self.methods, **begun}


OVERLAP = _Overlap()
METHODS = OVERLAP.methods
solve = OVERLAP.solve
