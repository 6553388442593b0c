"""The command line."""

from planner.cli.main import entry_point, main

__all__ = ["entry_point", "main"]
