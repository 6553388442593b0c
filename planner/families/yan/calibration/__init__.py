"""Constants of the model: measured on this machine, or fitted to measured epochs."""

from planner.families.yan.calibration.compute import Computation, measure_computation
from planner.families.yan.calibration.fit import Errors, Fit, fit
from planner.families.yan.calibration.least_squares import MeasuredEpoch

__all__ = ["Computation", "Errors", "Fit", "MeasuredEpoch", "fit", "measure_computation"]
