"""Answer streams and files of requests; one that exceeds a limit gets an error answer."""

import os
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from io import BufferedReader, FileIO
from itertools import islice
from threading import Condition, Thread
from typing import Any, BinaryIO

import msgspec
from msgspec import UNSET

from planner.jsonio.service import Reply, id_of, refusal, reply, solve
from planner.jsonio.workers import Limits, OverLimitError, Worker, WorkerFaultError
from planner.model.validation import integer
from planner.solving.deadline import Cancel, Incumbent

_CANCEL = re.compile(rb'\s*\{\s*"cancel"\s*:\s*([1-9][0-9]{0,17})\s*\}\s*')

_AHEAD = 64 * 2**20
"""Most bytes of requests read ahead, in addition to one request."""


def limited_replies(
    messages: Iterable[bytes],
    limits: Limits,
    told: Callable[[bytes], None] | None = None,
    cancels: Callable[[int], Cancel | None] | None = None,
) -> Generator[Reply, None, None]:
    """Answer one request per message, in order, in a separate process.

    A request that exceeds a limit is answered by the error ``limit_exceeded``. `told` gets each
    line of progress as JSON. `cancels` returns the cancel flag of a request by its number, which
    counts from 1.
    """
    with Worker(_serve, limits) as worker:
        for number, message in enumerate(messages, 1):

            def line(standing: bytes, number: int = number) -> None:
                if told is not None:
                    known = {"request": number, **msgspec.json.decode(standing)}
                    told(msgspec.json.encode({"progress": known}))

            try:
                status, data = worker.ask(message, line, cancels(number) if cancels else None)
            except OverLimitError as error:
                yield refusal(message, "limit_exceeded", _sentence(error.limit, limits), 2)
            except WorkerFaultError as error:
                fault = f"a fault of planner itself: {error}"
                yield refusal(message, "internal_error", fault, 1)
            else:
                yield Reply(data, status)


class CancellableLines:
    """The requests of a stream, read ahead; the line ``{"cancel": 3}`` cancels the third."""

    def __init__(self, stream: BinaryIO, limits: Limits) -> None:
        # A separate buffer: Python could not exit while a thread waits for the one of sys.stdin.
        raw: Any = getattr(stream, "raw", None)
        shared = isinstance(raw, FileIO) and not raw.closefd
        self._own = BufferedReader(raw) if shared else None
        self._stream = self._own or stream
        self._limits = limits
        self._lines: deque[bytes | BaseException | None] = deque()
        self._ahead = 0
        self._changed = Condition()
        self._cancelled: set[int] = set()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the requests."""
        Thread(target=self._read, daemon=True).start()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines.popleft()
                if isinstance(line, bytes):
                    self._ahead -= len(line)
                self._changed.notify_all()
            if line is None:
                return
            if isinstance(line, BaseException):
                raise line
            yield line

    def cancelled(self, number: int) -> bool:
        """Return whether a request, by its number from 1 on, has been cancelled."""
        return number in self._cancelled

    def _read(self) -> None:
        end: BaseException | None = None
        try:
            for line in read_lines(self._stream, self._limits):
                cancels = _CANCEL.fullmatch(line)
                with self._changed:
                    if cancels:
                        self._cancelled.add(int(cancels[1]))
                        continue
                    self._lines.append(line)
                    self._ahead += len(line)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._ahead <= _AHEAD or not self._lines)
        except (OSError, ValueError) as error:
            end = error
        if self._own is not None:
            self._own.detach()
        with self._changed:
            self._lines.append(end)
            self._changed.notify_all()


def read_lines(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends.

    A line that is too long is cut to one byte above the limit.
    """
    most = -1 if limits.request_bytes is None else limits.request_bytes + 1
    while line := stream.readline(most):
        rest = line
        while len(rest) == most and not rest.endswith(b"\n"):
            rest = stream.readline(most)
        yield line.removesuffix(b"\n")


def one_message(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    """Yield the whole content of a stream, cut to one byte above the limit if it is too long."""
    yield stream.read(-1 if limits.request_bytes is None else limits.request_bytes + 1)


def _serve(data: bytes, report: Callable[[bytes], None], cancel: Cancel) -> tuple[int, bytes]:
    known = id_of(data)
    identified = {} if known is UNSET else {"id": known}

    def on_progress(incumbent: Incumbent[Any]) -> None:
        names = ("objective_ns", "lower_bound_ns", "runtime_s")
        told = {name: getattr(incumbent, name) for name in names}
        report(msgspec.json.encode(told | identified))

    answered = reply(data, cancel, on_progress)
    if isinstance(answered.fault, MemoryError):
        raise answered.fault
    if answered.fault is not None and os.environ.get("PLANNER_DEBUG"):
        traceback.print_exception(answered.fault, file=sys.stderr)
    return answered.exit_status, answered.data


def _sentence(limit: str, limits: Limits) -> str:
    value = getattr(limits, limit)
    return {
        "request_bytes": f"expected a request of at most {value} bytes, got more",
        "memory_bytes": "expected a request that needs at most "
        + ("the memory there is" if value is None else f"{value} bytes of memory")
        + ", got one that needs more",
        "seconds": f"expected a request that needs at most {value:g} s of processor time, got one "
        "that needs more; time_limit_s ends a search with the best plan so far",
    }[limit]


# ---
# Answer many requests on any executor of `concurrent.futures`, in their order.
#
# The caller's executor places, restarts and scales: a process pool, Dask's
# ``Client.get_executor()``, ``mpi4py.futures``. A bounded number of requests is submitted ahead of
# the answer that is yielded next.
#
# Guarantee: the answers of `planner.solve`, in the order of the requests. Complexity: theirs, and
# one copy of each request and answer. Source: own.


def solve_many(
    requests: Iterable[Mapping[str, Any]], executor: Executor, *, ahead: int = 256
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each request, in the order of the requests.

    Typed problems need no function of their own: ``executor.map(caramel.solve, problems)``.

    Parameters
    ----------
    requests : iterable of mapping
        As for `planner.solve`; read only as far as they are submitted.
    executor : Executor
        Where requests are answered. Its machines need this package.
    ahead : int
        Number of requests submitted before the first of them has been answered.

    Yields
    ------
    dict
        An answer, or the error object of an invalid request.

    Raises
    ------
    InvalidInputError
        If `ahead` is not a positive integer.
    BrokenExecutor
        If a process of the executor died, for example because memory ran out.
    """
    integer(ahead, "ahead", minimum=1)
    left = iter(requests)
    submitted: deque[Future[dict[str, Any]]] = deque(
        executor.submit(solve, request) for request in islice(left, ahead)
    )
    try:
        while submitted:
            yield submitted.popleft().result()
            submitted.extend(executor.submit(solve, request) for request in islice(left, 1))
    finally:
        for future in submitted:
            future.cancel()
