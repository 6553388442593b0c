"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# The same examples on every run: a red test is a fact, not an accident.
settings.register_profile(
    "planner",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
# What runs once more without optional packages needs to be imported, not proven again.
settings.register_profile("again", settings.get_profile("planner"), max_examples=10)
settings.load_profile("planner")
