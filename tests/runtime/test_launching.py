"""What the launcher of the multi-process tests says of workers that return, fail, die and hang."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.launching import HangError, launch, running


class RefusedError(Exception):
    """Carries something that pickles, and something that does not."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path
        self.function = lambda: None


def end(factor: int) -> Any:
    """End in another way on each rank."""
    rank = int(os.environ["RANK"])
    if rank == 1:
        print("about to refuse")
        raise RefusedError("not this one", path="buckets[1]")
    if rank == 2:
        return lambda: None  # which does not pickle
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return rank * factor, os.environ["WORLD_SIZE"], os.getpid(), torch.get_num_threads()


def test_values_exceptions_and_signals_come_back_in_order_of_the_ranks() -> None:
    outcomes = launch(end, 5, 10)
    assert [outcome.rank for outcome in outcomes] == [0, 1, 2, 3, 4]
    assert [outcome.exit_code for outcome in outcomes] == [0, 1, 1, -signal.SIGKILL, 0]
    first, refused, unpicklable, killed, last = outcomes
    assert (first.value[:2], last.value[:2]) == ((0, "5"), (40, "5"))
    assert len({os.getpid(), first.value[2], last.value[2]}) == 3
    assert first.value[3] == last.value[3] == 1
    assert refused.error is not None
    assert (refused.error.type, refused.error.text) == ("RefusedError", "not this one")
    assert refused.error.attributes == {"path": "buckets[1]"}
    assert "in end" in refused.error.trace
    assert refused.output == "about to refuse\n"
    assert unpicklable.error is not None
    assert "lambda" in unpicklable.error.text
    assert (first.error, killed.value, killed.error) == (None, None, None)


def hang() -> None:
    if os.environ["RANK"] == "1":
        time.sleep(3600)
    if os.environ["RANK"] == "2":
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.slow
def test_workers_that_hang_are_ended_and_say_where_if_they_can() -> None:
    started: list[int] = []
    with pytest.raises(HangError) as error:
        launch(hang, 3, timeout_s=1, meanwhile=started.extend)
    fine, hung, stopped = str(error.value).split("--- rank ")[1:]
    assert "0 ended with 0" in fine
    assert "in hang" in hung
    assert "could not even say where" in stopped
    assert len(started) == 3
    assert not any(map(running, started))


@pytest.mark.slow
def test_workers_end_in_time_even_if_who_started_them_is_gone(tmp_path: Path) -> None:
    """The process that starts them, and its fork server, import no more than they need."""
    code = (
        "import time\n"
        "from tests.runtime import launching\n"
        "launching.PRELOADED = ['torch']\n"
        "launching.launch(\n"
        "    time.sleep, 2, 3600, timeout_s=2, meanwhile=lambda ids: print(*ids, flush=True)\n"
        ")\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        started = [int(number) for number in process.stdout.readline().split()]
        process.kill()
    assert len(started) == 2
    limit = time.monotonic() + 30
    try:
        while any(map(running, started)) and time.monotonic() < limit:
            time.sleep(0.05)
        assert not any(map(running, started))
    finally:
        for number in started:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
