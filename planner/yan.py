"""The short name of `planner.families.yan`."""

from planner.families.yan import *  # noqa: F403
from planner.families.yan import __all__ as __all__  # noqa: PLC0414
