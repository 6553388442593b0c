"""Whether this run is a thorough one: what is asked of all cases then, and of some otherwise."""

from hypothesis import settings

THOROUGH = settings.get_current_profile_name() in ("thorough", "fresh")
