"""The short name of `planner.families.drizzle`."""

from planner.families.drizzle import *  # noqa: F403
from planner.families.drizzle import __all__ as __all__  # noqa: PLC0414
