"""The methods by name, the pricing of their plans, and the adaptation of another job's plan.

`auto` is `rotated`; where its time equals the lower bound, no algorithm is faster.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isqrt
from typing import Any, Literal

from planner.families.bigdl.evaluation import Evaluation, check, evaluate, lower_bound_ns
from planner.families.bigdl.problem import Driver, Exchange, Plan, Problem
from planner.model.network import links, scaled_network
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes, format_ns
from planner.solving.compare import MACHINES, Column, Option, Place
from planner.solving.deadline import Deadline
from planner.solving.family import Family
from planner.solving.methods import Method, Outcome, named
from planner.solving.scenarios import Scenario, refuse_changes

# ---
# Synchronisation methods: BigDL's exchange in two pull orders, MLlib's sums through a driver.
#
# *rotated* is BigDL's exchange without hot spots: node i pulls from node i first, then i+1, and so
# on (mod N); `planner.families.bigdl.evaluation` says where it is optimal. *same_order* is the
# exchange in which every node pulls from node 0 first. MLlib's gradient descent calls *reduce*
# (every task sends its gradient to the driver) and *tree_aggregate* (nodes merge gradients first,
# with the default depth of 2) in Spark; *tree_aggregate_torrent* also spreads the weights between
# nodes.
#
# Complexity: O(1), tree_aggregate O(log tasks). Source: Venkataraman, Ding and Ermolin, section
# "Communications in BigDL"; Apache Spark's ``RDD.reduce`` and ``RDD.treeAggregate``.


def _exchange(order: Literal["rotated", "same"]) -> Method[Problem, Plan]:
    return lambda problem, _: Outcome(Exchange(problem.elements, problem.nodes, order))


def _driver(
    levels: Callable[[int], tuple[int, ...]], *, torrent: bool = False
) -> Method[Problem, Plan]:
    return lambda problem, _: Outcome(Driver(levels(problem.tasks), torrent))


def tree_levels(tasks: int) -> tuple[int, ...]:
    """Return the number of partial sums at each level of a tree aggregation of depth 2.

    As in Spark, each level divides the number (integer division) by a scale: the square root of the
    number of tasks, rounded up, at least 2. Levels are added while the number exceeds the scale
    plus the next level's number, rounded up.
    """
    scale = max(isqrt(tasks - 1) + 1, 2)
    levels = [tasks]
    while levels[-1] > scale + -(-levels[-1] // scale):
        levels.append(levels[-1] // scale)
    return tuple(levels)


class _Bigdl(Family[Problem, Plan, Evaluation]):
    name, plan_type = "bigdl", Plan
    own_methods = {
        "auto": named("rotated", _exchange("rotated")),
        "rotated": _exchange("rotated"),
        "same_order": _exchange("same"),
        "reduce": _driver(lambda tasks: (tasks,)),
        "tree_aggregate": _driver(tree_levels),
        "tree_aggregate_torrent": _driver(tree_levels, torrent=True),
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
            "--tasks N",
            "tasks of a machine, each with gradients of its own; default: as the cluster says, or "
            "1",
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
        """Adapt an old plan to the elements and nodes of the problem."""
        if isinstance(plan, Exchange):
            return replace(plan, elements=problem.elements, nodes=problem.nodes)
        return plan

    def perturb(self, problem: Problem, scenario: Scenario) -> Problem:
        reason = "the exchange of bigdl has no passes and no spreads"
        refuse_changes(scenario, ("late", "spread", "part", "shared"), reason)
        return replace(problem, network=scaled_network(problem.network, **scenario.links))

    def summary(self, problem: Problem) -> str:
        size = problem.gradient_bytes
        return (
            f"{counted(problem.nodes, 'node')} with "
            f"{counted(problem.partitions_per_node, 'partition')} each, "
            f"{format_bytes(size)} of gradients, T_F "
            f"{format_ns(problem.network.full_transfer_ns(size))}"
        )

    def resolved_options(self, options: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
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
