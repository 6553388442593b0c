"""Gradient transfers: order, batches, windows and depth, with the optimum beside them.

Source: Hashemi et al., "Caramel: Accelerating Decentralized Distributed Deep Learning with
Computation Scheduling", arXiv 2004.14020.
"""

from planner.caramel.evaluation import Evaluation, check, evaluate
from planner.caramel.problem import Group, OpOrder, Part, Plan, Problem, Stages
from planner.caramel.solver import METHODS, solve

__all__ = [
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
