"""`planner.caramel`: an alias of the package `planner.families.caramel`."""

from planner.families.caramel import *
from planner.families.caramel import __all__ as __all__
