"""Strategies and properties for authors of methods, families, formats and executors.

They need Hypothesis: ``pip install '.[testing]'``. docs/testing.md explains each promise.
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
