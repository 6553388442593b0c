"""Analysis of recorded jobs: what computation waited for, why, and what a plan could save."""

from planner.traces.breakdown import Breakdown, StepParts, breakdown_of, parts_of
from planner.traces.recorded import Kernels, Recorded, Step, Transfer
from planner.traces.saving import Saving, saving_of
from planner.traces.waits import CAUSES, Wait, waits_of

__all__ = [
    "CAUSES",
    "Breakdown",
    "Kernels",
    "Recorded",
    "Saving",
    "Step",
    "StepParts",
    "Transfer",
    "Wait",
    "breakdown_of",
    "parts_of",
    "saving_of",
    "waits_of",
]
