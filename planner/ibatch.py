"""The short name of `planner.families.ibatch`."""

from planner.families.ibatch import *  # noqa: F403
from planner.families.ibatch import __all__ as __all__  # noqa: PLC0414
