"""The short name of `planner.families.overlap`."""

from planner.families.overlap import *  # noqa: F403
from planner.families.overlap import __all__ as __all__  # noqa: PLC0414
