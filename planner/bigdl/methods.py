"""The ways to synchronise: BigDL's two orders of pulling, and MLlib's ways through the driver.

Each is a rule. *rotated* is BigDL's exchange with the pull order that has no hot spot; among all
algorithms it is the best wherever the bound says so (see `planner.bigdl.bounds`). *same_order* is
the exchange with everybody asking node 0 first. *reduce* and *tree_aggregate* are what MLlib's
gradient descent calls in Spark; *tree_aggregate_torrent* also spreads the weights between nodes.

Complexity: O(1), tree_aggregate O(log tasks).
Source: Venkataraman, Ding and Ermolin, section "Communications in BigDL"; Apache Spark's
``RDD.reduce`` and ``RDD.treeAggregate``.
"""

from math import isqrt

from planner.bigdl.plan import Driver, Exchange, Plan
from planner.bigdl.problem import Problem
from planner.deadline import Deadline
from planner.solving.methods import Outcome

__all__ = [
    "reduce",
    "rotated",
    "same_order",
    "tree_aggregate",
    "tree_aggregate_torrent",
    "tree_levels",
]


def rotated(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Pull from oneself first, then from the next node, and so on around."""
    return Outcome(Exchange(problem.elements, problem.nodes, "rotated"))


def same_order(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Pull from node 0 first, then from node 1, and so on."""
    return Outcome(Exchange(problem.elements, problem.nodes, "same"))


def reduce(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Send the gradient of every task to the driver."""
    return Outcome(Driver((problem.tasks,)))


def tree_aggregate(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Merge gradients on the nodes first, as Spark does with its default depth of 2."""
    return Outcome(Driver(tree_levels(problem.tasks)))


def tree_aggregate_torrent(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Merge in the same way; nodes pass the weights on to each other."""
    return Outcome(Driver(tree_levels(problem.tasks), torrent=True))


def tree_levels(tasks: int) -> tuple[int, ...]:
    """Return how many partial sums each level of a tree aggregation of depth 2 has.

    Spark divides their number (integer division) by a scale, the square root of the number of
    tasks rounded up and at least 2, as long as there are more of them than the scale and what one
    more level would leave, rounded up, together.
    """
    scale = max(isqrt(tasks - 1) + 1, 2)
    levels = [tasks]
    while levels[-1] > scale + -(-levels[-1] // scale):
        levels.append(levels[-1] // scale)
    return tuple(levels)
