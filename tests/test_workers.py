"""Processes that answer within limits: what exceeds one is named, and the next message answered."""

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from planner.jsonio.workers import Limits, OverLimitError, Worker, WorkerFaultError

LIMITS = Limits(request_bytes=1000, memory_bytes=2**27, seconds=0.5)


def _busy() -> None:
    while True:
        pass


def _wait_for_a_child() -> tuple[int, bytes]:
    """As a solver that is a program of its own does."""
    pid = os.fork()
    if not pid:
        _busy()
    os.waitpid(pid, 0)
    return 1, b"the solver said nothing"


ACTIONS: dict[bytes, Callable[[], Any]] = {
    b"pid": lambda: (0, str(os.getpid()).encode()),
    b"some": lambda: (0, bytes(2**26)[:1]),
    b"memory": lambda: (0, bytes(2**31)[:1]),
    b"busy": _busy,
    b"child": _wait_for_a_child,
    b"signal 6": lambda: os.kill(os.getpid(), 6),
    b"signal 9": lambda: os.kill(os.getpid(), 9),
    b"signal 11": lambda: os.kill(os.getpid(), 11),
    b"exit": lambda: os._exit(3),
    b"fault": lambda: (1, b"a fault"),
}
"""What a worker does, by the message; others are answered backwards."""


def serve(message: bytes, *_: object) -> Any:
    faulthandler.disable()  # pytest's, which would tell of deaths that are meant
    return ACTIONS.get(message, lambda: (0, message[::-1]))()


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(serve, LIMITS) as one:
        yield one


def test_one_process_answers_in_order(worker: Worker) -> None:
    pids = {worker.ask(b"pid") for _ in range(3)}
    assert len(pids) == 1
    assert int(next(iter(pids))[1]) != os.getpid()
    for word in (b"", b"abc", b"x" * 1000):
        assert worker.ask(word) == (0, word[::-1])
    assert worker.ask(b"fault") == (1, b"a fault")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "limit"),
    [
        (b"x" * 1001, "request_bytes"),
        (b"memory", "memory_bytes"),
        (b"busy", "seconds"),
        (b"child", "seconds"),
        (b"signal 9", "memory_bytes"),  # so does a machine that is out of memory
    ],
)
def test_what_exceeds_a_limit_is_named_and_the_next_is_answered(
    worker: Worker, message: bytes, limit: str
) -> None:
    begin = time.monotonic()
    with pytest.raises(OverLimitError) as caught:
        worker.ask(message)
    assert caught.value.limit == limit
    assert worker.ask(b"abc") == (0, b"cba")
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("message", "said"), [(b"signal 11", "SIGSEGV"), (b"signal 6", "SIGABRT"), (b"exit", "3")]
)
def test_another_death_is_a_fault(worker: Worker, message: bytes, said: str) -> None:
    with pytest.raises(WorkerFaultError, match=said):
        worker.ask(message)
    assert worker.ask(b"abc") == (0, b"cba")


def test_nothing_is_left_behind(worker: Worker) -> None:
    pid = int(worker.ask(b"pid")[1])
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_a_large_parent_leaves_as_much_memory_as_a_small_one() -> None:
    held = bytearray(os.urandom(2**20) * 192)  # more than the limit, and written to
    with Worker(serve, LIMITS) as worker:
        assert worker.ask(b"abc") == (0, b"cba")
        assert worker.ask(b"some")[0] == 0
        with pytest.raises(OverLimitError):
            worker.ask(b"memory")
        with pytest.raises(WorkerFaultError):
            worker.ask(b"exit")
    assert len(held) == 192 * 2**20


def test_without_limits_there_are_none() -> None:
    with Worker(serve, Limits(None, None, None)) as worker:
        assert len(worker.ask(b"x" * 10**6)[1]) == 10**6
        assert worker.ask(b"memory")[0] == 0
