"""`planner.collectives`: an alias of the package `planner.families.collectives`."""

from planner.families.collectives import *
from planner.families.collectives import __all__ as __all__
