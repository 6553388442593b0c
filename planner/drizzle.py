"""`planner.drizzle`: an alias of the package `planner.families.drizzle`."""

from planner.families.drizzle import *
from planner.families.drizzle import __all__ as __all__
