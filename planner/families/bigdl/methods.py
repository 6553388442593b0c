"""Synchronisation methods: BigDL's exchange in two pull orders, MLlib's sums through a driver.

*rotated* is BigDL's exchange without hot spots; `planner.families.bigdl.evaluation` says where it
is optimal. *same_order* is the exchange in which every node pulls from node 0 first. MLlib's
gradient descent calls *reduce* and *tree_aggregate* in Spark; *tree_aggregate_torrent* also spreads
the weights between nodes.

Complexity: O(1), tree_aggregate O(log tasks).
Source: Venkataraman, Ding and Ermolin, section "Communications in BigDL"; Apache Spark's
``RDD.reduce`` and ``RDD.treeAggregate``.
"""

from math import isqrt

from planner.families.bigdl.problem import Driver, Exchange, Plan, Problem
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome


def rotated(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Return the exchange in which node i pulls from node i first, then i+1, and so on (mod N)."""
    return Outcome(Exchange(problem.elements, problem.nodes, "rotated"))


def same_order(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Return the exchange in which every node pulls from node 0 first, then node 1, and so on."""
    return Outcome(Exchange(problem.elements, problem.nodes, "same"))


def reduce(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Return the plan in which every task sends its gradient to the driver."""
    return Outcome(Driver((problem.tasks,)))


def tree_aggregate(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Return the plan that merges gradients on the nodes first, with Spark's default depth of 2."""
    return Outcome(Driver(tree_levels(problem.tasks)))


def tree_aggregate_torrent(problem: Problem, _: Deadline) -> Outcome[Plan]:
    """Return the plan of `tree_aggregate` in which nodes pass the weights on to each other."""
    return Outcome(Driver(tree_levels(problem.tasks), torrent=True))


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
