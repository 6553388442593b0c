"""BML, gradient synchronisation on a BCube: who sums which piece, over which link, in which step.

Source: Wang et al., "BML: A High-performance, Low-cost Gradient Synchronization Algorithm for DML
Training", NeurIPS 2018.
"""

from planner.families.bml.checker import CheckerContext, check
from planner.families.bml.evaluation import Evaluation, evaluate
from planner.families.bml.family import BML, METHODS, solve
from planner.families.bml.methods import ideal_ns, lower_bound_ns
from planner.families.bml.problem import Problem, Transfer
from planner.families.bml.program import program_of
from planner.families.bml.reroute import Damage
from planner.families.bml.schedule import Schedule
from planner.families.bml.trees import Plan, TreePlan
from planner.model.topologies import Failures

__all__ = [
    "BML",
    "METHODS",
    "CheckerContext",
    "Damage",
    "Evaluation",
    "Failures",
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
