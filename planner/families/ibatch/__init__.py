"""iBatch: which layers to send together, with exact and published methods.

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`. `evaluate` prices a
plan, `check` verifies it, `schedule` and `timeline` return when each batch communicates and
computes.
"""

from planner.families.ibatch.blocks import OWN_UNITS, Blocks
from planner.families.ibatch.evaluation import Evaluation, check, evaluate, schedule, timeline
from planner.families.ibatch.family import IBATCH, METHODS, solve
from planner.families.ibatch.problem import COLLECTIVES, Plan, Problem

__all__ = [
    "COLLECTIVES",
    "IBATCH",
    "METHODS",
    "OWN_UNITS",
    "Blocks",
    "Evaluation",
    "Plan",
    "Problem",
    "check",
    "evaluate",
    "schedule",
    "solve",
    "timeline",
]
