"""`planner.ibatch`: an alias of the package `planner.families.ibatch`."""

from planner.families.ibatch import *
from planner.families.ibatch import __all__ as __all__
