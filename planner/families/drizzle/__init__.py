"""Group scheduling (Drizzle): how many iterations the driver schedules at once.

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`; `evaluate` prices any
plan, `check` rejects invalid plans. `calibrate` fits the constants of a scheduler to measured
overheads; `adjusted` is the online rule for the group size, and `group_sizes` simulates it.

Source: Venkataraman, Ding and Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle
on Apache Spark".
"""

from planner.families.drizzle.calibration import Calibration, Measurement, calibrate
from planner.families.drizzle.evaluation import (
    Band,
    Evaluation,
    State,
    adjusted,
    check,
    evaluate,
    group_sizes,
)
from planner.families.drizzle.family import DRIZZLE, METHODS, solve
from planner.families.drizzle.problem import Plan, Problem, Stage, Triggers

__all__ = [
    "DRIZZLE",
    "METHODS",
    "Band",
    "Calibration",
    "Evaluation",
    "Measurement",
    "Plan",
    "Problem",
    "Stage",
    "State",
    "Triggers",
    "adjusted",
    "calibrate",
    "check",
    "evaluate",
    "group_sizes",
    "solve",
]
