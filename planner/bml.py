"""`planner.bml`: an alias of the package `planner.families.bml`."""

from planner.families.bml import *
from planner.families.bml import __all__ as __all__
