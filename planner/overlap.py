"""The short name of `planner.families.overlap`."""

from planner.families.overlap import *
from planner.families.overlap import __all__ as __all__
