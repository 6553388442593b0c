"""The short name of `planner.families.fsdp`."""

from planner.families.fsdp import *  # noqa: F403
from planner.families.fsdp import __all__ as __all__  # noqa: PLC0414
