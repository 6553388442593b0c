"""BML, gradient synchronisation on a BCube: who sums which piece, over which link, in which step.

Source: Wang et al., "BML: A High-performance, Low-cost Gradient Synchronization Algorithm for DML
Training", NeurIPS 2018.
"""

from planner.bml.checker import Ground, check
from planner.bml.damage import Damage
from planner.bml.evaluation import Evaluation, evaluate
from planner.bml.family import BML, METHODS, ideal_ns, lower_bound_ns, solve
from planner.bml.plan import Plan, Transfer
from planner.bml.problem import Failures, Problem
from planner.bml.program import program_of
from planner.bml.schedule import Schedule
from planner.bml.trees import TreePlan

__all__ = [
    "BML",
    "METHODS",
    "Damage",
    "Evaluation",
    "Failures",
    "Ground",
    "Plan",
    "Problem",
    "Schedule",
    "Transfer",
    "TreePlan",
    "check",
    "evaluate",
    "ideal_ns",
    "lower_bound_ns",
    "program_of",
    "solve",
]
