"""`planner.fsdp`: an alias of the package `planner.families.fsdp`."""

from planner.families.fsdp import *
from planner.families.fsdp import __all__ as __all__
