"""`planner.yan`: an alias of the package `planner.families.yan`."""

from planner.families.yan import *
from planner.families.yan import __all__ as __all__
