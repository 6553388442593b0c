"""Streams of requests, each within its limits: what exceeds one is answered by an error."""

import os
import sys
import traceback
from collections.abc import Generator, Iterable, Iterator
from typing import BinaryIO

import msgspec

from planner.jsonio.service import ErrorAnswer, ErrorCode, ErrorDetail, Reply, reply
from planner.workers import Limits, OverLimitError, Worker, WorkerFaultError

__all__ = ["limited_replies", "one_message", "read_lines"]


def limited_replies(messages: Iterable[bytes], limits: Limits) -> Generator[Reply, None, None]:
    """Answer one request a message, in order, in a process of their own.

    Parameters
    ----------
    messages : iterable of bytes
        Requests as JSON text.
    limits : Limits
        What each of them may take. One that exceeds a limit is answered by an error with the code
        ``limit_exceeded``.
    """
    with Worker(_serve, limits) as worker:
        for message in messages:
            try:
                status, data = worker.ask(message)
            except OverLimitError as error:
                yield _refused("limit_exceeded", _sentence(error.limit, limits), 2)
            except WorkerFaultError as error:
                yield _refused("internal_error", f"a fault of planner itself: {error}", 1)
            else:
                yield Reply(data, status)


def read_lines(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends.

    Of a line that is too long only so much is kept that it still is.
    """
    most = -1 if limits.request_bytes is None else limits.request_bytes + 1
    while line := stream.readline(most):
        rest = line
        while len(rest) == most and not rest.endswith(b"\n"):
            rest = stream.readline(most)
        yield line.removesuffix(b"\n")


def one_message(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    """Yield all that a stream holds, or so much of it that it still is too long."""
    yield stream.read(-1 if limits.request_bytes is None else limits.request_bytes + 1)


def _serve(data: bytes) -> tuple[int, bytes]:
    answered = reply(data)
    if isinstance(answered.fault, MemoryError):
        raise answered.fault
    if answered.fault is not None and os.environ.get("PLANNER_DEBUG"):
        traceback.print_exception(answered.fault, file=sys.stderr)
    return answered.exit_status, answered.data


def _refused(code: ErrorCode, message: str, status: int) -> Reply:
    return Reply(msgspec.json.encode(ErrorAnswer(ErrorDetail(code, "", message))), status)


def _sentence(limit: str, limits: Limits) -> str:
    value = getattr(limits, limit)
    return {
        "request_bytes": f"expected a request of at most {value} bytes, got more",
        "answer_bytes": f"expected an answer of at most {value} bytes, got more",
        "memory_bytes": "expected a request that needs at most "
        + ("the memory there is" if value is None else f"{value} bytes of memory")
        + ", got one that needs more",
        "seconds": f"expected a request that needs at most {value:g} s of processor time, got one "
        "that needs more; time_limit_s ends a search with the best plan so far",
    }[limit]
