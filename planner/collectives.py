"""The short name of `planner.families.collectives`."""

from planner.families.collectives import *  # noqa: F403
from planner.families.collectives import __all__ as __all__  # noqa: PLC0414
