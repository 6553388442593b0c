"""Constants of the model, measured on this machine."""

from planner.families.yan.calibration.compute import Computation, measure_computation

__all__ = ["Computation", "measure_computation"]
