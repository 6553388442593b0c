"""The methods by name, and how their plans are judged.

`auto` is `rotated`; its bound says where nothing can be faster.
"""

from dataclasses import replace
from typing import TypeAlias

from planner.bigdl.bounds import lower_bound_ns
from planner.bigdl.checker import check
from planner.bigdl.evaluation import Evaluation, evaluate
from planner.bigdl.methods import (
    reduce,
    rotated,
    same_order,
    tree_aggregate,
    tree_aggregate_torrent,
)
from planner.bigdl.plan import Plan
from planner.bigdl.problem import Problem
from planner.bigdl.refit import adapt
from planner.deadline import Deadline
from planner.network import scaled_network
from planner.scenarios import Scenario, refuse_changes
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import named

__all__ = ["BIGDL", "METHODS", "Method", "solve"]

Method: TypeAlias = AnyMethod[Problem, Plan]


class _Bigdl(Family[Problem, Plan, Evaluation]):
    name, plan_type = "bigdl", Plan
    own_methods = {
        "auto": named("rotated", rotated),
        "rotated": rotated,
        "same_order": same_order,
        "reduce": reduce,
        "tree_aggregate": tree_aggregate,
        "tree_aggregate_torrent": tree_aggregate_torrent,
    }

    def check(self, problem: Problem, plan: Plan, deadline: Deadline) -> None:
        check(problem, plan)

    def evaluate(self, problem: Problem, plan: Plan, deadline: Deadline) -> Evaluation:
        return evaluate(problem, plan)

    def objective(self, problem: Problem, evaluation: Evaluation) -> int:
        return evaluation.objective_ns

    def bound(self, problem: Problem, plan: Plan, deadline: Deadline) -> tuple[int, bool]:
        return lower_bound_ns(problem), False

    def adapt(self, problem: Problem, plan: Plan) -> Plan:
        return adapt(problem, plan)

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        reason = "the exchange of bigdl has no passes and no spreads"
        refuse_changes(scenario, ("late", "spread", "part"), reason)
        return replace(problem, network=scaled_network(problem.network, scenario))


BIGDL = _Bigdl()
METHODS = BIGDL.methods
solve = BIGDL.solve
