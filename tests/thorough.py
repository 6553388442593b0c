"""Whether this run is a thorough one: what is asked of all cases then, and of some otherwise."""

import os

from hypothesis import settings

_TOLD = "PLANNER_THOROUGH_TESTS"
"""Tells the processes that tests start, which load no profile."""

THOROUGH = settings.get_current_profile_name() in ("thorough", "fresh") or _TOLD in os.environ

if THOROUGH:
    os.environ[_TOLD] = "1"
