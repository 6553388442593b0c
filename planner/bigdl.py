"""`planner.bigdl`: an alias of the package `planner.families.bigdl`."""

from planner.families.bigdl import *
from planner.families.bigdl import __all__ as __all__
