"""Analysis of recorded jobs: what computation waited for, why, and what a plan could save."""

from planner.traces.recorded import Recorded

__all__ = ["Recorded"]
