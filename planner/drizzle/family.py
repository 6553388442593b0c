"""The methods by name, and how their plans are judged."""

from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from planner.deadline import Deadline
from planner.drizzle.closed_form import solve_exact
from planner.drizzle.evaluation import Evaluation, check, evaluate
from planner.drizzle.problem import Plan, Problem
from planner.drizzle.refit import adapt
from planner.errors import NotApplicableError
from planner.scenarios import Scenario, refuse_changes
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

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        """Return the problem with the times of a scenario: all scheduling is start-up."""
        fields = ("bandwidth", "late", "spread", "part")
        refuse_changes(scenario, fields, "drizzle has no network and no passes")
        names = ("group_ns", "task_ns", "constant_task_ns")
        times = {name: getattr(problem, name) * scenario.startup for name in names}
        compute = round(problem.compute_ns * scenario.computation)
        return replace(problem, compute_ns=compute, **times)

    def fix_order(self, problem: Problem, plan: Plan) -> Problem:
        """Raise an error: a group that is too small for a scenario is no plan in it."""
        reason = "not for problem drizzle: the size of a group follows from its limits"
        raise NotApplicableError("scenarios", reason)


DRIZZLE = _Drizzle()
METHODS = DRIZZLE.methods
solve = DRIZZLE.solve
