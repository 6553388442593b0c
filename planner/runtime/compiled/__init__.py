"""Plans followed inside the graphs that torch.compile makes: see `backend`."""

from planner.runtime.compiled.backend import PlannedBackend

__all__ = ["PlannedBackend"]
