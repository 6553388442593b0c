"""The store that all ranks share: reaching it, and not waiting for ever where torch would.

Problem. Torch's store has no time limit on its answers: if the process that holds it is stopped,
or its machine cut off without a word, whoever asks hangs, in C++ code that nothing interrupts.

Method. What may hang runs in a thread of its own, which is left behind when the time is over.

Guarantee. Nobody waits for the store longer than the limit, and a look. Complexity. A thread for
each question that may hang; what others are to write is looked for in growing intervals. Source.
Own.
"""

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import TypeVar

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

__all__ = ["LOOK_S", "first_line", "hand_out", "missing", "reach", "within"]

LOOK_S = 0.05
"""How often to look for what others write; at first more often, as they mostly are about to."""

_FIRST_LOOK_S = 0.001

_BACKLOG = 2048
"""Ranks that may wait to be let in, as in torch."""

_Result = TypeVar("_Result")


def within(
    limit_s: float, call: Callable[[], _Result], check: Callable[[], object] | None = None
) -> _Result:
    """Return what a call returns, or raise what it raises, within a time limit.

    Parameters
    ----------
    limit_s : float
        The limit, in seconds.
    call : callable
        What may take longer; it then goes on in the background.
    check : callable, optional
        Called meanwhile, several times a second; what it raises ends the waiting.

    Raises
    ------
    RuntimeError
        If the time is over.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised again below
            errors.append(error)
        ended.set()

    threading.Thread(target=run, name="planner-store", daemon=True).start()
    end = time.monotonic() + limit_s
    while not ended.wait(min(max(end - time.monotonic(), 0), 2 * LOOK_S)):
        if check is not None:
            check()
        if time.monotonic() >= end:
            raise RuntimeError(f"no answer within {limit_s:g} s")
    if errors:
        raise errors[0]
    return results[0]


def reach(host: str, port: int, size: int, *, hold: bool, timeout_s: float) -> Store:
    """Return the store at an address, which this process holds or somebody else.

    Whoever holds it listens at that address alone; if a name is given that other machines may read
    otherwise, or an address that is not this machine's (of a router, say), at all there are, as
    torch does.

    Raises
    ------
    RuntimeError
        If it cannot be reached in time, or not held here.
    """
    end = time.monotonic() + timeout_s
    while not hold:  # without a word; torch would write pages about each attempt
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
    """Return a socket that listens at an address alone; None if others may mean another one."""
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
    """Wait until a store has all keys; return the positions of those it does not have in time.

    Parameters
    ----------
    store : Store
        Where to look.
    keys : sequence of str
        What to wait for.
    timeout_s : float
        How long, in seconds.
    check : callable, optional
        Called meanwhile.
    over : str, optional
        A key that ends the waiting.

    Raises
    ------
    RuntimeError
        If the store does not answer; and what `check` raises.
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
    """Wait until all ranks have come here, so that the store can end; not for ever."""
    keys = [f"{what}/{peer}" for peer in ranks]
    with suppress(RuntimeError):
        within(limit_s, lambda: store.set(f"{what}/{rank}", "1"))
        missing(store, keys, limit_s)


def first_line(error: BaseException) -> str:
    """Return what an error says, without what follows on other lines, and where gloo was."""
    line = (str(error).splitlines() or [""])[0] or type(error).__name__
    if line.startswith("[") and "] " in line:  # [/path/of/gloo/pair.cc:537] Read error …
        line = line.partition("] ")[2]
    return line.partition(". This is typically")[0]
