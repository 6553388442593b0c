"""Strategies and properties for whoever writes a method, a family, a format or an executor.

It needs Hypothesis: ``pip install '.[testing]'``. What each promise means: docs/testing.md.
"""

from planner.testing.executors import check_executor
from planner.testing.ladder import check_family, check_method
from planner.testing.problems import plans, problems
from planner.testing.strategies import clusters, costs, graphs, networks, profiles

__all__ = [
    "check_executor",
    "check_family",
    "check_method",
    "clusters",
    "costs",
    "graphs",
    "networks",
    "plans",
    "problems",
    "profiles",
]
