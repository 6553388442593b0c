"""The short name of `planner.families.caramel`."""

from planner.families.caramel import *  # noqa: F403
from planner.families.caramel import __all__ as __all__  # noqa: PLC0414
