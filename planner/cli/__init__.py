"""The command line."""

from planner.__main__ import entry_point
from planner.cli.main import main

__all__ = ["entry_point", "main"]
