"""Settings of the tests that run several processes, some of them on an emulated cluster."""

import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

# `benchmarks` is a folder of scripts; the workers of `launch` are given this path too.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

# Without torch only what needs none can be imported.
collect_ignore = [
    str(path)
    for path in Path(__file__).parent.rglob("test_*.py")
    if not find_spec("torch") and path.name != "test_measured.py"
]


@cache
def why_no_cluster() -> str | None:
    """Say why no cluster can be emulated here."""
    from emulated_network import reason_unavailable

    return reason_unavailable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked `emulated` where no cluster can be."""
    if item.get_closest_marker("emulated") and (reason := why_no_cluster()) is not None:
        pytest.skip(reason)


@pytest.fixture
def store() -> Iterator[int]:
    """Return the port of a store that a launcher holds."""
    from torch import distributed

    from tests.runtime.launching import free_port

    port = free_port()
    held = distributed.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)  # type: ignore[attr-defined]
    yield port
    del held
