"""The ranks of a job: agreement, process groups and failure reports."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Self

from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store

from planner.model.errors import CommunicationError, DisagreementError, InvalidInputError
from planner.runtime.world.store import first_line, hand_out, missing, within
from planner.runtime.world.watch import Watch, timeout_margin_s

_LET_GO_S = 0.02
"""Pause (s) of this thread at the end, in which gloo's threads free their last transfers' objects.

To free them takes Python's lock. An interpreter that ends first makes them abort the process (torch
2.13: an `AsyncWork` holds Python objects, and a thread that may not take the lock is unwound).
"""

AT_ONCE = 2
"""Transfers of a queue in flight at a time, as in torch's own groups."""


class PeerError(RuntimeError):
    """A failed transfer with known peers."""

    def __init__(self, message: str, peers: tuple[int, ...]) -> None:
        super().__init__(message)
        self.peers = peers


@contextmanager
def blaming(peer: int) -> Iterator[None]:
    """Turn a `RuntimeError` into a `PeerError` with the given peer."""
    try:
        yield
    except RuntimeError as error:
        raise PeerError(first_line(error), (peer,)) from error


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """All ranks of a job, seen from one of them.

    As a context manager it leaves the job at the end; an exception is reported to the other ranks,
    which then stop::

        with join() as world, attach(model, plan, optimizer, world) as executor:
            ...
    """

    rank: int
    size: int  # the number of ranks
    timeout_s: float  # how long a transfer may wait for its partner
    interfaces: tuple[str, ...]  # network interfaces (see `join`); empty for gloo's choice
    store: Store  # shared by all ranks
    group: Any  # a gloo group of all ranks
    watch: Watch  # the failure detection
    turns: Iterator[int] = field(default_factory=count)  # number exchanges, so names may repeat
    attached: set[int] = field(default_factory=set)  # parameters (by `id`) of this rank's executors
    guest: bool = False  # other code has initialised `torch.distributed`; `leave` does not end it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self.report(error)
        self.leave()

    def report(
        self, error: BaseException | None, step: int | None = None, batch: int | None = None
    ) -> None:
        """Report an exception that ends this rank to the other ranks, unless they know it.

        An exit without an error is not reported: other ranks learn of it when they need this rank.
        """
        known = self.watch.error is not None or isinstance(error, DisagreementError)
        if error is None or known or (isinstance(error, SystemExit) and not error.code):
            return
        text = first_line(error)
        kind = type(error).__name__
        reason = kind if text == kind else f"{kind}: {text}"
        self.watch.failed(reason, step=step, batch=batch, at_fault=True)

    def agree(self, what: str, value: str) -> None:
        """Check that all ranks give the same value.

        Every rank has to call it, with the same `what`; no call returns before all ranks have
        called. If values differ from rank 0's, a `DisagreementError` is raised on every rank.
        """
        values = self.gather(what, value)
        different = tuple(rank for rank, theirs in enumerate(values) if theirs != values[0])
        if different:
            limit_s = timeout_margin_s(
                self.timeout_s
            )  # all have read before the rank with the store ends
            hand_out(self.store, f"seen/{what}", self.rank, range(self.size), limit_s)
            ranks = ", ".join(map(str, different))
            raise DisagreementError(
                f"the ranks do not agree on {what}: rank {ranks} "
                f"{'differs' if len(different) == 1 else 'differ'} from rank 0",
                different,
            )

    def gather(self, what: str, value: str) -> tuple[str, ...]:
        """Return the values of all ranks.

        Every rank has to call it, with the same `what` and in the same order. If a rank gives no
        value in time, a `CommunicationError` is raised.
        """
        name = f"{next(self.turns)}/{what}"
        keys = [f"{name}/{rank}" for rank in range(self.size)]
        try:
            within(self.timeout_s, lambda: self.store.set(keys[self.rank], value), self.watch.check)
            absent = missing(self.store, keys, self.timeout_s, self.watch.check)
            if not absent:
                return within(
                    self.timeout_s, lambda: tuple(self.store.get(key).decode() for key in keys)
                )
        except RuntimeError as error:
            raise self.watch.failed(
                f"cannot compare {what} with the other ranks: {first_line(error)}"
            ) from error
        reason = f"no word from {ranks_named(absent)} within {self.timeout_s:g} s about {what}"
        raise self.watch.failed(reason, peers=absent)

    def new_group(self, ranks: Sequence[int] | None = None, interface: str | None = None) -> Any:
        """Return a gloo group of some ranks, by default of all; None on other ranks.

        It is a queue: transfers begin in order, two are in flight. `torch.distributed` does
        not know it. Every rank has to call this, in the same order.
        """
        kind: Any = distributed.ProcessGroupGloo
        members = tuple(range(self.size) if ranks is None else ranks)
        store = PrefixStore(f"group/{next(self.turns)}", self.store)
        if self.rank not in members:
            return None

        def made() -> Any:
            options = kind._Options()
            chosen = interface or only(self.interfaces) or os.environ.get("GLOO_SOCKET_IFNAME", "")
            names = chosen.split(",")
            options._devices = [kind.create_device(interface=name) for name in names if name] or [
                kind.create_default_device()
            ]
            options._threads = AT_ONCE
            options._timeout = timedelta(seconds=self.timeout_s)
            return kind(store, members.index(self.rank), len(members), options)

        try:
            return within(self.timeout_s + 1, made, self.watch.check)
        except RuntimeError as error:
            raise self.watch.failed(
                f"no group of {ranks_named(members)}: {first_line(error)}"
            ) from error

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Report an `InvalidInputError` that ends this rank to the other ranks."""
        try:
            yield
        except InvalidInputError as error:
            self.watch.failed(str(error), at_fault=True)
            raise

    @contextmanager
    def transferring(self, step: int | None = None, batch: int | None = None) -> Iterator[None]:
        """Turn errors of a transfer into a `CommunicationError`, and tell the other ranks."""
        try:
            with self.watch.transfer(step, batch):
                yield
        except RuntimeError as error:
            blamed = error.peers if isinstance(error, PeerError) else ()
            raise self.watch.failed(
                first_line(error), step=step, batch=batch, peers=blamed
            ) from error
        except CommunicationError:
            raise
        except Exception as error:
            self.report(error, step, batch)
            raise

    def leave(self) -> None:
        """Leave the job, after closing every executor.

        The rank that holds the store, if no launcher does, waits for the other ranks to leave, up
        to the time-out.
        """
        self.watch.leave()
        if distributed.is_initialized():
            with suppress(ValueError):  # a guest's group is gone if its host has ended first
                distributed.destroy_process_group(self.group if self.guest else None)
        self.watch.wait_for_others()
        time.sleep(_LET_GO_S)


def ranks_named(ranks: Sequence[int]) -> str:
    """Return the ranks as words of a sentence."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def only(interfaces: Sequence[str]) -> str | None:
    """Return the interface if there is exactly one."""
    return interfaces[0] if len(interfaces) == 1 else None
