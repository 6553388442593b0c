"""The short name of `planner.families.yan`."""

from planner.families.yan import *
from planner.families.yan import __all__ as __all__
