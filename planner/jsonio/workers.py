"""A process that answers one message after another within limits of memory and time.

Problem: a message that needs too much memory or time gets an error; all others get their answers.

Method: one child process, forked before anything is solved, answers messages over a connection.
The kernel limits its memory and processor time (``setrlimit``), which also stops compiled code. A
child that dies, or has grown large, is replaced by a new fork of the parent. Memory counts from
what the child inherits, so that a large parent, such as a trainer, leaves the same amount for a
message. Processes that the child starts die with it.

Cost: two or three transfers over a socket and some system calls per message.
"""

import gc
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias

from planner.solving.deadline import Cancel

_LOOK_S = 0.02
"""Interval between checks for cancellation."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Threads of libraries take memory without benefit here; set before the libraries are imported."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one message; None means no limit."""

    request_bytes: int | None = 16 * 2**20  # length of a message
    memory_bytes: int | None = 2**30  # writable memory of the child, without inherited
    seconds: float | None = 300.0  # processor time; ends up to a second later


Serve: TypeAlias = Callable[[bytes, Callable[[bytes], None], Cancel], tuple[int, bytes]]


class OverLimitError(Exception):
    """A message exceeded `limit`, the name of a field of `Limits`."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class WorkerFaultError(Exception):
    """The process died for another reason than a limit."""


class _Answer(NamedTuple):
    """The head of an answer, which is sent before the bytes of the answer."""

    status: int
    grown: bool  # whether the process holds so much memory that another should answer the next
    exceeded: str | None  # the limit


class Cancelled:
    """Flag of whether the message that is being answered is cancelled; looks at intervals."""

    def __init__(self, asked: Connection) -> None:
        self._asked = asked
        self._looked, self._set = 0.0, False

    def is_set(self) -> bool:
        """Return whether to stop."""
        now = time.monotonic()
        if not self._set and now >= self._looked + _LOOK_S:
            self._looked = now
            self._set = self._asked.poll() and self._asked.recv() is None
        return self._set


class Worker:
    """A process that answers messages.

    `serve` runs in the process. It takes the message, a function that sends progress, and a stop
    flag; it returns a status from 0 to 255 and the answer. Status 1 means an internal error.
    """

    def __init__(self, serve: Serve, limits: Limits) -> None:
        self._serve = serve
        self._limits = limits
        self._process: _Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self,
        message: bytes,
        told: Callable[[bytes], None] | None = None,
        cancel: Cancel | None = None,
    ) -> tuple[int, bytes]:
        """Return the status and the answer to one message.

        `told` is called with each progress message; `cancel`, once set, asks the process to end
        with its best result. Raises OverLimitError, or WorkerFaultError if the process died
        otherwise.
        """
        most = self._limits.request_bytes
        if most is not None and len(message) > most:
            raise OverLimitError("request_bytes")
        if self._process is None:
            self._process = _started(self._serve, self._limits)
        try:
            self._over(partial(self._process.channel.send, message))
            while isinstance(answered := self._over(partial(self._next, cancel)), bytes):
                if told is not None:
                    told(answered)
            answer = self._over(self._process.channel.recv_bytes)
        except BaseException:
            self.close()
            raise
        if answered.grown:
            self.close()
        if answered.exceeded is not None:
            raise OverLimitError(answered.exceeded)
        return answered.status, answer

    def close(self) -> None:
        """End the process and its children."""
        if self._process is not None:
            _ended(self._process)
            self._process = None

    def _over(self, step: Callable[[], Any]) -> Any:
        """Take a step over the connection; raise the reason if the process has died."""
        try:
            return step()
        except (EOFError, OSError):
            raise self._death() from None

    def _next(self, cancel: Cancel | None) -> Any:
        """Return the next message of the process: progress, or the head of its answer.

        A cancellation is passed on meanwhile.
        """
        assert self._process is not None
        channel, asked = self._process.channel, False
        while True:
            if cancel is not None and cancel.is_set() and not asked:
                channel.send(None)
                asked = True
            if channel.poll(None if cancel is None else _LOOK_S):
                return channel.recv()

    def _death(self) -> Exception:
        """Return the error for a process that has died."""
        assert self._process is not None
        code, usage = _ended(self._process)
        peak = usage.ru_maxrss * 1024 - self._process.inherited
        self._process = None
        number = -os.waitstatus_to_exitcode(code)
        if number == signal.SIGXCPU:
            return OverLimitError("seconds")
        memory = self._limits.memory_bytes
        # Without memory, compiled code aborts, and the kernel sends SIGKILL.
        if number == signal.SIGKILL or (memory is not None and peak > memory // 2):
            return OverLimitError("memory_bytes")
        name = signal.Signals(number).name if number > 0 else f"exit status {-number}"
        return WorkerFaultError(f"the process that answers ended with {name}")


class _Process(NamedTuple):
    pid: int
    inherited: int
    channel: Connection


def _started(serve: Serve, limits: Limits) -> _Process:
    ours, theirs = Pipe()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    resident, _ = _memory()
    with warnings.catch_warnings():
        # The child does not need the parent's threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        ours.close()
        _answering(serve, limits, theirs, resident)
    theirs.close()
    with suppress(OSError):
        os.setpgid(pid, pid)  # in both processes: either may be first
    return _Process(pid, resident, ours)


def _memory() -> tuple[int, int]:
    """Return the resident and the writable memory of this process (bytes); 0 if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # no imports here
            pages = [int(field) for field in file.read().split()]
    except OSError:
        return 0, 0
    size = resource.getpagesize()
    return pages[1] * size, pages[5] * size


def _ended(process: _Process) -> tuple[int, resource.struct_rusage]:
    process.channel.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _, code, usage = os.wait4(process.pid, 0)
    return code, usage


def _answering(serve: Serve, limits: Limits, channel: Connection, inherited: int) -> NoReturn:
    """Run the child's main loop: answer until there are no more messages."""
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        _die_with_the_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        gc.freeze()
        for name in _THREADS:
            os.environ.setdefault(name, "1")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limits.memory_bytes is not None:
            # Measured in the child: stacks of the parent's threads may not have been inherited.
            _lowered(resource.RLIMIT_DATA, limits.memory_bytes + _memory()[1])
        while True:
            message = channel.recv()
            if message is not None:  # else a cancellation that came too late
                _answer(partial(serve, message), limits, channel, inherited)
    except BaseException as error:  # code of the parent must not run in the child
        os._exit(0 if isinstance(error, EOFError | ConnectionError) else 1)


def _die_with_the_parent() -> None:
    """Ask Linux to kill this process when the thread that forked it ends."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _answer(
    serve: Callable[[Callable[[bytes], None], Cancel], tuple[int, bytes]],
    limits: Limits,
    channel: Connection,
    inherited: int,
) -> None:
    before = _cpu_s()
    if limits.seconds is not None:
        _lowered(resource.RLIMIT_CPU, int(time.process_time() + limits.seconds) + 1)
    exceeded = None
    try:
        status, answer = serve(channel.send, Cancelled(channel))
    except MemoryError:
        exceeded, status, answer = "memory_bytes", 0, b""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(who).ru_maxrss * 1024 for who in whose) - inherited
    grown = limits.memory_bytes is not None and peak > limits.memory_bytes // 2
    if status == 1 and grown:
        exceeded, answer = "memory_bytes", b""  # compiled code reports it in its own way
    elif status == 1 and limits.seconds is not None and _cpu_s() - before > limits.seconds:
        exceeded, answer = "seconds", b""  # a program that it started was stopped
    channel.send(_Answer(status, grown or exceeded == "memory_bytes", exceeded))
    channel.send_bytes(answer)


def _cpu_s() -> float:
    """Return the processor time (s) of this process and its finished children."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _lowered(which: int, limit: int) -> None:
    """Set a soft limit, within the hard limit."""
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (limit if hard < 0 else min(limit, hard), hard))
