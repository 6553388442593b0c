"""Constants of the model: measured on this machine, or fitted to measured epochs."""

from planner.families.yan.calibration.compute import Computation, measure_computation
from planner.families.yan.calibration.fit import Fit, fit
from planner.families.yan.calibration.least_squares import MeasuredEpoch
from planner.families.yan.calibration.quality import Errors

__all__ = ["Computation", "Errors", "Fit", "MeasuredEpoch", "fit", "measure_computation"]
