"""How many iterations to schedule at once: Drizzle's group scheduling.

`solve` takes a frozen `Problem` and returns a `Result` with a frozen `Plan`; `evaluate` prices any
plan, `check` rejects what is none. `calibrate` finds the constants of a scheduler from measured
overheads; `adjusted` is the rule that finds the group size while a job runs, and `group_sizes`
simulates it.
"""

from planner.drizzle.calibration import Calibration, Measurement, calibrate
from planner.drizzle.controller import Band, State, adjusted, group_sizes
from planner.drizzle.evaluation import Evaluation, check, evaluate
from planner.drizzle.family import DRIZZLE, METHODS, solve
from planner.drizzle.problem import Plan, Problem
from planner.drizzle.stages import Stage, Triggers

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
