"""The methods by name, and how their plans are judged."""

from fractions import Fraction
from typing import TypeAlias

from planner.deadline import Deadline
from planner.drizzle.closed_form import solve_exact
from planner.drizzle.evaluation import Evaluation, check, evaluate
from planner.drizzle.problem import Plan, Problem
from planner.drizzle.refit import adapt
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import Outcome, named

__all__ = ["DRIZZLE", "METHODS", "Method", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]


class _Drizzle(Family[Problem, Plan, Evaluation]):
    name, plan_type = "drizzle", Plan
    own_methods = {"auto": named("exact", solve_exact), "exact": solve_exact}

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.group_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[Fraction, bool]:
        """Return what a group of one iteration takes: none is shorter."""
        return problem.compute_ns + problem.always_ns + problem.once_ns, False

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        return adapt(problem, plan)

    def improve(self, problem: Problem, plan: Plan, deadline: Deadline) -> Outcome[Plan]:
        """Return the best plan: the closed form needs no old one."""
        return solve_exact(problem, deadline)


DRIZZLE = _Drizzle()
METHODS = DRIZZLE.methods
solve = DRIZZLE.solve
