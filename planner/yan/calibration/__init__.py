"""Constants of the model: measured on this machine, or fitted to measured epochs."""

from planner.yan.calibration.compute import Computation, measure_computation
from planner.yan.calibration.fit import Fit, fit
from planner.yan.calibration.least_squares import MeasuredEpoch
from planner.yan.calibration.quality import Errors

__all__ = ["Computation", "Errors", "Fit", "MeasuredEpoch", "fit", "measure_computation"]
