"""The store that all ranks share, with time limits.

Problem: Torch's store has no time limit on answers: if its process is stopped or cut off, callers
hang in C++ code that cannot be interrupted.
Method: Calls that may hang run in a thread, which is abandoned at the limit.
Guarantee: No caller waits longer than the limit and one polling interval.
Complexity: One thread per call that may hang; polling at growing intervals.
"""

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import TypeVar

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

LOOK_S = 0.05
"""Longest polling interval; it starts shorter, since most values arrive soon."""

_FIRST_LOOK_S = 0.001

_BACKLOG = 2048
"""Ranks that may wait for a connection, as in torch."""

_Result = TypeVar("_Result")


def within(
    limit_s: float, call: Callable[[], _Result], check: Callable[[], object] | None = None
) -> _Result:
    """Return or raise the result of a call, or a `RuntimeError` after `limit_s` seconds.

    The call then continues in the background. `check` is called meanwhile, several times a second;
    its error ends the waiting.
    """
    answer: Future[_Result] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised again below
            answer.set_exception(error)

    threading.Thread(target=run, name="planner-store", daemon=True).start()
    end = time.monotonic() + limit_s
    while not wait([answer], min(max(end - time.monotonic(), 0), 2 * LOOK_S)).done:
        if check is not None:
            check()
        if time.monotonic() >= end:
            raise RuntimeError(f"no answer within {limit_s:g} s")
    return answer.result()


def reach(host: str, port: int, size: int, *, hold: bool, timeout_s: float) -> Store:
    """Return the store at an address; `hold` says whether this process holds it.

    The holder listens at that address alone. A host name, which other machines may resolve
    differently, or an address of another machine (a router's) makes it listen on all interfaces, as
    torch does. A `RuntimeError` is raised if the store cannot be reached or held in time.
    """
    end = time.monotonic() + timeout_s
    while not hold:  # a plain socket, because torch logs pages about each failed attempt
        try:
            socket.create_connection((host, port), max(end - time.monotonic(), LOOK_S)).close()
            break
        except OSError as error:
            if time.monotonic() >= end:
                raise RuntimeError(first_line(error)) from error
            time.sleep(LOOK_S)
    limit = timedelta(seconds=timeout_s)
    listening = _listening(host, port) if hold else None
    return within(
        max(end - time.monotonic(), 1),
        lambda: TCPStore(
            host,
            port,
            size,
            hold,
            limit,
            wait_for_workers=False,
            master_listen_fd=None if listening is None else listening.detach(),
        ),
    )


def _listening(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens at an address alone; None if names may resolve differently."""
    if host != "localhost":
        try:
            ip_address(host)
        except ValueError:
            return None
    family, kind, protocol, _, address = min(
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), key=lambda entry: entry[0]
    )
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRNOTAVAIL:
            return None
        raise RuntimeError(first_line(error)) from error
    return listening


def missing(
    store: Store,
    keys: Sequence[str],
    timeout_s: float,
    check: Callable[[], object] | None = None,
    over: str | None = None,
) -> tuple[int, ...]:
    """Wait until a store has all keys; return the positions of keys missing at the time limit.

    The key `over` ends the waiting; `check` is called meanwhile. A `RuntimeError` is raised if the
    store does not answer.
    """
    end = time.monotonic() + timeout_s

    def look() -> tuple[int, ...]:
        left, pause_s = tuple(range(len(keys))), _FIRST_LOOK_S
        while True:
            left = tuple(place for place in left if not store.check([keys[place]]))
            if not left or time.monotonic() >= end or (over and store.check([over])):
                return left
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)

    return within(timeout_s + 1, look, check)


def hand_out(store: Store, what: str, rank: int, ranks: Iterable[int], limit_s: float) -> None:
    """Wait, up to the limit, until all ranks have called this, so that the store may end."""
    keys = [f"{what}/{peer}" for peer in ranks]
    with suppress(RuntimeError):
        within(limit_s, lambda: store.set(f"{what}/{rank}", "1"))
        missing(store, keys, limit_s)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without gloo's source position."""
    line = (str(error).splitlines() or [""])[0] or type(error).__name__
    if line.startswith("[") and "] " in line:  # [/path/of/gloo/pair.cc:537] Read error …
        line = line.partition("] ")[2]
    return line.partition(". This is typically")[0]
