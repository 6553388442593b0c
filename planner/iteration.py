"""`planner.iteration`: an alias of the package `planner.families.iteration`."""

from planner.families.iteration import *
from planner.families.iteration import __all__ as __all__
