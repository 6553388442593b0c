"""Fully sharded training (FSDP2, ZeRO-3): which layers to gather together, when, and what to keep.

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`. `evaluate` prices a
plan and returns its memory over time; `check` verifies it.
"""

from planner.families.fsdp.checker import check
from planner.families.fsdp.evaluation import Evaluation, evaluate
from planner.families.fsdp.family import FSDP, METHODS, solve
from planner.families.fsdp.problem import Mesh, Plan, Problem, Unit

__all__ = [
    "FSDP",
    "METHODS",
    "Evaluation",
    "Mesh",
    "Plan",
    "Problem",
    "Unit",
    "check",
    "evaluate",
    "solve",
]
