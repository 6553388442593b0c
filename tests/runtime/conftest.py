"""Settings of the tests that run several processes, some of them on an emulated cluster."""

import sys
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


@pytest.fixture(scope="session")
def why_no_cluster() -> str | None:
    """Say why no cluster can be emulated here."""
    from emulated_network import reason_unavailable

    return reason_unavailable()


@pytest.fixture(autouse=True)
def _cluster(request: pytest.FixtureRequest) -> None:
    """Skip what is marked `emulated` where no cluster can be."""
    if request.node.get_closest_marker("emulated"):
        reason = request.getfixturevalue("why_no_cluster")
        if reason is not None:
            pytest.skip(reason)
