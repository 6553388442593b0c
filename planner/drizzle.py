"""The short name of `planner.families.drizzle`."""

from planner.families.drizzle import *
from planner.families.drizzle import __all__ as __all__
