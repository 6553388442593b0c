"""The short name of `planner.families.bml`."""

from planner.families.bml import *  # noqa: F403
from planner.families.bml import __all__ as __all__  # noqa: PLC0414
