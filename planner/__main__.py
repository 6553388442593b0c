"""``python -m planner``."""

from planner.cli import entry_point

entry_point()
