"""Settings of all tests."""

from typing import Any

import pytest
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

JOBS = (
    "tests/runtime/",
    "tests/cli/test_run",
    "tests/cli/test_calibrate_network",
    "tests/docs/test_tutorial",
)
"""Tests that start jobs of several processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run those tests first: where tests run in parallel, the others then go on beside them."""
    items.sort(key=lambda item: not item.nodeid.startswith(JOBS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give those tests to one worker, one after the other, and all others to whoever is free."""
    from xdist.scheduler import LoadScopeScheduling

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = lambda nodeid: "jobs" if nodeid.startswith(JOBS) else nodeid
    return scheduler
