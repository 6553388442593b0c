"""Settings of these tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _hardly_any_cutting() -> Iterator[None]:
    """The search for cuts is tested with its family; here it would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.families.caramel.methods.SPLIT_WORK", 0.002)
        yield
