"""Overlap of computation and collectives in a compiled graph: the order of its nodes, and merging.

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`; `evaluate` prices a
plan, `check` verifies it.
"""

from planner.families.overlap.bounds import lower_bound_ns
from planner.families.overlap.builder import Builder
from planner.families.overlap.evaluation import (
    Evaluation,
    Plan,
    Transfer,
    check,
    check_memory,
    check_structure,
    evaluate,
    own_order,
)
from planner.families.overlap.family import METHODS, OVERLAP, small, solve
from planner.families.overlap.problem import Collective, Kind, Node, Problem, Tensor, with_limit

__all__ = [
    "METHODS",
    "OVERLAP",
    "Builder",
    "Collective",
    "Evaluation",
    "Kind",
    "Node",
    "Plan",
    "Problem",
    "Tensor",
    "Transfer",
    "check",
    "check_memory",
    "check_structure",
    "evaluate",
    "lower_bound_ns",
    "own_order",
    "small",
    "solve",
    "with_limit",
]
