"""What the launcher of the multi-process tests says of workers that return, fail, die and hang."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.runtime import launching
from tests.runtime.launching import HangError, launch


class RefusedError(Exception):
    """Carries something that pickles, and something that does not."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path
        self.function = lambda: None


def describe(factor: int) -> tuple[int, str, int, int]:
    rank = int(os.environ["RANK"])
    return rank * factor, os.environ["WORLD_SIZE"], os.getpid(), torch.get_num_threads()


def refuse() -> None:
    if os.environ["RANK"] == "1":
        print("about to refuse")
        raise RefusedError("not this one", path="buckets[1]")


def unpicklable() -> object:
    return lambda: None


def die() -> str:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def wait_here(seconds: float) -> None:
    if os.environ["RANK"] == "1":
        time.sleep(seconds)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def test_values_come_back_in_order_of_the_ranks() -> None:
    outcomes = launch(describe, 3, 10)
    assert [outcome.rank for outcome in outcomes] == [0, 1, 2]
    assert [outcome.value[:2] for outcome in outcomes] == [(0, "3"), (10, "3"), (20, "3")]
    assert len({outcome.value[2] for outcome in outcomes} | {os.getpid()}) == 4
    assert {outcome.value[3] for outcome in outcomes} == {1}
    assert {outcome.exit_code for outcome in outcomes} == {0}


def test_an_exception_arrives() -> None:
    fine, refused = launch(refuse, 2)
    assert (fine.error, fine.exit_code) == (None, 0)
    assert refused.exit_code == 1
    assert refused.error is not None
    assert (refused.error.type, refused.error.text) == ("RefusedError", "not this one")
    assert refused.error.attributes == {"path": "buckets[1]"}
    assert "in refuse" in refused.error.trace
    assert refused.output == "about to refuse\n"


def test_a_value_that_cannot_come_back_is_an_error() -> None:
    (outcome,) = launch(unpicklable, 1)
    assert outcome.error is not None
    assert "lambda" in outcome.error.text


def test_a_killed_worker_is_reported() -> None:
    survivor, killed = launch(die, 2)
    assert (survivor.value, survivor.exit_code) == ("survived", 0)
    assert (killed.value, killed.error, killed.exit_code) == (None, None, -signal.SIGKILL)


def gone(process: int) -> bool:
    """Tell whether a process has ended; nobody may have waited for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended_and_says_where() -> None:
    started: list[int] = []
    with pytest.raises(HangError) as error:
        launch(wait_here, 2, 3600, timeout_s=1, meanwhile=started.extend)
    fine, hung = str(error.value).split("--- rank 1")
    assert "rank 0 ended with 0" in fine
    assert "in wait_here" in hung
    assert all(gone(process) for process in started)


@pytest.mark.slow
def test_a_worker_that_cannot_even_end_itself_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "GRACE_S", 0.5)
    started: list[int] = []
    with pytest.raises(HangError, match="could not even say where"):
        launch(stop, 1, timeout_s=0.5, meanwhile=started.extend)
    assert gone(started[0])


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
    command = [sys.executable, "-c", code]
    surroundings = {**os.environ, "TMPDIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, env=surroundings, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        started = [int(number) for number in process.stdout.readline().split()]
        process.kill()
    assert len(started) == 2
    limit = time.monotonic() + 30
    try:
        while not all(gone(number) for number in started) and time.monotonic() < limit:
            time.sleep(0.05)
        assert all(gone(number) for number in started)
    finally:
        for number in started:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
