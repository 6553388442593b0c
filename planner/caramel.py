"""The short name of `planner.families.caramel`."""

from planner.families.caramel import *
from planner.families.caramel import __all__ as __all__
