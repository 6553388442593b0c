"""What to gather together, when, and what to keep: fully sharded training (FSDP2, ZeRO-3).

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`; `evaluate` prices any
plan, and says what is in memory when; `check` rejects what is none.
"""

from planner.fsdp.checker import check
from planner.fsdp.evaluation import Evaluation, evaluate
from planner.fsdp.family import FSDP, METHODS, solve
from planner.fsdp.plan import Plan, Unit
from planner.fsdp.problem import Mesh, Problem

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
