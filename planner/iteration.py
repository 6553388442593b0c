"""The short name of `planner.families.iteration`."""

from planner.families.iteration import *
from planner.families.iteration import __all__ as __all__
