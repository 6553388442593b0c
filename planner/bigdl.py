"""The short name of `planner.families.bigdl`."""

from planner.families.bigdl import *  # noqa: F403
from planner.families.bigdl import __all__ as __all__  # noqa: PLC0414
