"""A job that a launcher starts again: ranks meet although launchers have counted differently."""

import os

import pytest

pytest.importorskip("torch")

from planner.runtime import join
from tests.runtime.launching import launch


def started_again(shared: str | None) -> int:
    """Join a job whose launchers have counted other numbers of failures."""
    rank = os.environ["RANK"]
    if shared is not None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = shared
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "3" if rank == "0" else "1"
    with join(20) as world:
        return world.size


def test_launchers_need_not_have_counted_the_same_failures() -> None:
    """One that came later has seen fewer. Rank 0 holds the store, which is new in each start."""
    for shared in (None, "False"):
        outcomes = launch(started_again, 2, shared, timeout_s=60)
        assert [outcome.value for outcome in outcomes] == [2, 2], outcomes
