"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# The same examples on every run: a red test is a fact, not an accident.
settings.register_profile(
    "planner",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("planner")
