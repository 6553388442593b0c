"""Settings of the tests that measure models."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _nothing_to_collect() -> None:
    """Leave to no garbage collector what earlier tests hold: each measurement begins with one."""
    gc.collect()
    gc.freeze()
