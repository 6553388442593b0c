"""A job that a launcher starts again: ranks meet although launchers have counted differently."""

import os
import time
from typing import Any

from torch import distributed

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


def joined_slowly() -> tuple[float, float]:
    """Return when this rank was connected, on rank 0 a second late, and when it had joined."""
    connect, connected = distributed.init_process_group, [0.0]

    def late(*given: Any, **options: Any) -> None:
        connect(*given, **options)
        if os.environ["RANK"] == "0":
            time.sleep(1)
        connected[0] = time.time()

    distributed.init_process_group = late
    with join(20):
        return connected[0], time.time()


def test_nobody_has_joined_before_all_are_connected() -> None:
    """One that left sooner closed connections that another was still making."""
    (connected, _), (_, joined) = (outcome.value for outcome in launch(joined_slowly, 2))
    assert joined >= connected
