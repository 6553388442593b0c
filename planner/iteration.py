"""The short name of `planner.families.iteration`."""

from planner.families.iteration import *  # noqa: F403
from planner.families.iteration import __all__ as __all__  # noqa: PLC0414
