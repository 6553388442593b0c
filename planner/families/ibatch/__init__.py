"""iBatch: which layers to send together, with exact and published methods.

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`. `evaluate` prices a
plan, `check` verifies it, `schedule` and `timeline` return when each batch communicates and
computes.
"""

from planner.families.ibatch.evaluation import Evaluation, check, evaluate, schedule, timeline
from planner.families.ibatch.family import IBATCH, METHODS, solve
from planner.families.ibatch.problem import COLLECTIVES, Plan, Problem

__all__ = [
    "COLLECTIVES",
    "IBATCH",
    "METHODS",
    "Evaluation",
    "Plan",
    "Problem",
    "check",
    "evaluate",
    "schedule",
    "solve",
    "timeline",
]
