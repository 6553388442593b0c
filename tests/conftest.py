"""Settings of all tests."""

from pathlib import Path

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

SEVERAL_PROCESSES = ("runtime/", "cli/test_run", "cli/test_calibrate_network", "docs/test_tutorial")
"""Tests that start jobs of several processes: where tests run in parallel, one after the other."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give those tests to one worker, and first, so that the others go on beside them."""
    here = Path(__file__).parent
    jobs = [
        item
        for item in items
        if item.path.relative_to(here).as_posix().startswith(SEVERAL_PROCESSES)
    ]
    for item in jobs:
        item.add_marker(pytest.mark.xdist_group("jobs"))
    first = set(jobs)
    items[:] = [*jobs, *(item for item in items if item not in first)]
