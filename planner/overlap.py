"""`planner.overlap`: an alias of the package `planner.families.overlap`."""

from planner.families.overlap import *
from planner.families.overlap import __all__ as __all__
