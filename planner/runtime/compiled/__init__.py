"""Plans followed inside the graphs that torch.compile makes: see `backend`."""

from planner.runtime.compiled.backend import PlannedBackend
from planner.runtime.compiled.overlapping import impose_overlap

__all__ = ["PlannedBackend", "impose_overlap"]
