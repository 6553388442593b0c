"""The short name of `planner.families.ibatch`."""

from planner.families.ibatch import *
from planner.families.ibatch import __all__ as __all__
