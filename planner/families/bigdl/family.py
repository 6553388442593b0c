"""The methods by name, and how their plans are judged.

`auto` is `rotated`; its bound says where nothing can be faster.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from planner.families.bigdl.checker import check
from planner.families.bigdl.evaluation import Evaluation, evaluate, lower_bound_ns
from planner.families.bigdl.methods import (
    reduce,
    rotated,
    same_order,
    tree_aggregate,
    tree_aggregate_torrent,
)
from planner.families.bigdl.problem import Plan, Problem
from planner.families.bigdl.refit import adapt
from planner.model.network import links, scaled_network
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes, format_ns
from planner.solving.compare import MACHINES, Case, Column, Option, Place
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Method as AnyMethod
from planner.solving.methods import named
from planner.solving.scenarios import Scenario, refuse_changes

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

    ends = ("above bound", "status")
    asks = "which slice each node sums on Spark"
    example = "planner compare data/bigdl/vgg19-16.json"
    columns = (
        Column("time"),
        Column("× T_F", lambda _, __, cost: float(cost.times_full_transfer), ".4g"),
        Column.of("through the driver", "driver_bytes", "bytes"),
    )
    own_options = (
        MACHINES,
        Option(
            "--tasks",
            "tasks of a machine, each with gradients of its own; default: as the cluster says, or "
            "1",
            "whole",
            metavar="P",
            least=1,
        ),
    )

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
        return replace(problem, network=scaled_network(problem.network, **scenario.links))

    def summary(self, problem: Problem) -> str:
        size = problem.gradient_bytes
        return (
            f"{counted(problem.nodes, 'node')} with "
            f"{counted(problem.partitions_per_node, 'partition')} each, "
            f"{format_bytes(size)} of gradients, T_F "
            f"{format_ns(problem.network.full_transfer_ns(size))}"
        )

    def network_text(self, case: Case[Problem]) -> str:
        assert case.place is not None
        return f"start-up {case.place.startup} a step, {case.place.bandwidth}"

    def settled(self, options: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
        return {**options, "machines": place.machines(options["machines"])}

    def from_profile(self, profile: Profile, place: Place, options: Mapping[str, Any]) -> Problem:
        scheduling = place.cluster.scheduling if place.cluster else None
        size = profile.element_bytes
        gradients = sum(parameter.size_bytes for parameter in profile.dataflow().parameters)
        return Problem(
            elements=gradients // size,
            element_bytes=size,
            nodes=options["machines"],
            partitions_per_node=options["tasks"]
            or (scheduling.tasks_per_machine if scheduling else 1),
            network=links(place.network, 1),
        )


BIGDL = _Bigdl()
METHODS = BIGDL.methods
solve = BIGDL.solve
