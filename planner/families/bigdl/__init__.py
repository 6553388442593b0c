"""BigDL's gradient synchronisation: slices exchanged between nodes, or sums through a driver.

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`; `evaluate` prices any
plan, `check` rejects invalid plans, `pulls_at_once` shows hot spots.

Source: Venkataraman, Ding and Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle
on Apache Spark".
"""

from planner.families.bigdl.evaluation import (
    Evaluation,
    Phase,
    check,
    check_levels,
    check_pulls,
    check_slices,
    evaluate,
    lower_bound_ns,
    pulls_at_once,
)
from planner.families.bigdl.family import BIGDL, METHODS, solve
from planner.families.bigdl.problem import Driver, Exchange, Plan, Problem

__all__ = [
    "BIGDL",
    "METHODS",
    "Driver",
    "Evaluation",
    "Exchange",
    "Phase",
    "Plan",
    "Problem",
    "check",
    "check_levels",
    "check_pulls",
    "check_slices",
    "evaluate",
    "lower_bound_ns",
    "pulls_at_once",
    "solve",
]
