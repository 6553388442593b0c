"""The short name of `planner.families.collectives`."""

from planner.families.collectives import *
from planner.families.collectives import __all__ as __all__
