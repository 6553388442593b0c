"""Gradient transfers: order, batches, transfer windows and depth, and the best plan with its bound.

Source: Hashemi et al., "Caramel: Accelerating Decentralized Distributed Deep Learning with
Computation Scheduling", arXiv 2004.14020.
"""

from planner.families.caramel.checker import check
from planner.families.caramel.evaluation import Evaluation, evaluate
from planner.families.caramel.family import CARAMEL, METHODS, solve
from planner.families.caramel.problem import Group, OpOrder, Plan, Problem, Stages
from planner.solving.transfers import Part

__all__ = [
    "CARAMEL",
    "METHODS",
    "Evaluation",
    "Group",
    "OpOrder",
    "Part",
    "Plan",
    "Problem",
    "Stages",
    "check",
    "evaluate",
    "solve",
]
