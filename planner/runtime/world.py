"""The ranks of a job: how they find each other, agree, and learn that one of them has failed.

Rendezvous is torch's own: its store, at the address every launcher gives by ``MASTER_ADDR`` and
``MASTER_PORT``, and gloo's process groups on top of it.
"""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from types import TracebackType
from typing import Any, Self

from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store

from planner.errors import CommunicationError, DisagreementError, InvalidInputError
from planner.runtime.launcher import job, listed
from planner.runtime.store import first_line, hand_out, missing, reach, within
from planner.runtime.watch import Watch, grace_s

__all__ = ["PeerError", "World", "blaming", "join"]


class PeerError(RuntimeError):
    """A transfer failed, and it is known with whom."""

    def __init__(self, message: str, peers: tuple[int, ...]) -> None:
        super().__init__(message)
        self.peers = peers


@contextmanager
def blaming(peer: int, where: str = "") -> Iterator[None]:
    """Say with whom a transfer failed."""
    try:
        yield
    except RuntimeError as error:
        raise PeerError(f"{where}{first_line(error)}", (peer,)) from error


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """All ranks of a job, seen from one of them.

    Used in a ``with`` statement it leaves the job at the end, and an exception that ends the
    statement early is told to the other ranks, which stop with it::

        with join() as world, attach(model, plan, optimizer, world) as executor:
            ...

    Attributes
    ----------
    rank, size : int
        This rank, and how many there are.
    timeout_s : float
        How long a transfer may wait for its partner.
    interfaces : tuple of str
        Network interfaces to use (see `join`); empty: gloo's choice.
    store : Store
        What all ranks share.
    group : ProcessGroup
        All of them.
    watch : Watch
        Whether all is well.
    turns : iterator of int
        Numbers what ranks tell each other, so that names can be used again.
    attached : set of int
        The parameters (by `id`) that an executor of this rank has now.
    """

    rank: int
    size: int
    timeout_s: float
    interfaces: tuple[str, ...]
    store: Store
    group: Any
    watch: Watch
    turns: Iterator[int] = field(default_factory=count)
    attached: set[int] = field(default_factory=set)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.report(error)
        self.leave()

    def report(
        self, error: BaseException | None, step: int | None = None, batch: int | None = None
    ) -> None:
        """Tell the other ranks of an exception that ends this one, if they do not know it yet.

        An exit without an error is none: they learn that this rank has left if they need it.
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

        Every rank has to call it, with the same `what`, before it can return anywhere.

        Raises
        ------
        DisagreementError
            On every rank, if some differ from rank 0.
        CommunicationError
            If a rank gives none in time.
        """
        values = self.gather(what, value)
        different = tuple(rank for rank, other in enumerate(values) if other != values[0])
        if different:
            self._wait_until_read(what)
            ranks = ", ".join(map(str, different))
            raise DisagreementError(
                f"the ranks do not agree on {what}: rank {ranks} "
                f"{'differs' if len(different) == 1 else 'differ'} from rank 0",
                different,
            )

    def gather(self, what: str, value: str) -> tuple[str, ...]:
        """Return the values of all ranks.

        Every rank has to call it, with the same `what` and in the same order.

        Raises
        ------
        CommunicationError
            If a rank gives none in time.
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
        reason = f"no word from {_ranks(absent)} within {self.timeout_s:g} s about {what}"
        raise self.watch.failed(reason, peers=absent)

    def _wait_until_read(self, what: str) -> None:
        """Let all ranks see what was gathered before this one, which may hold the store, ends."""
        hand_out(self.store, f"seen/{what}", self.rank, range(self.size), grace_s(self.timeout_s))

    @contextmanager
    def subgroup(self, ranks: Sequence[int], interface: str | None = None) -> Iterator[Any]:
        """Make a process group of some ranks, on one network interface, for the time being.

        Every rank has to call it, in the same order.
        """
        group = self.new_group(ranks, interface)
        try:
            yield group
        finally:
            if group is not None and self.watch.error is None:
                distributed.destroy_process_group(group)

    def new_group(self, ranks: Sequence[int], interface: str | None = None) -> Any:
        """Return a process group of some ranks, on a network interface of its own; None for others.

        Every rank has to call it, in the same order.
        """
        try:
            with _on(interface or _only(self.interfaces)):
                made = within(
                    self.timeout_s + 1,
                    lambda: distributed.new_group(
                        list(ranks), timeout=timedelta(seconds=self.timeout_s), backend="gloo"
                    ),
                    self.watch.check,
                )
        except RuntimeError as error:
            raise self.watch.failed(f"no group of {_ranks(ranks)}: {first_line(error)}") from error
        return made if self.rank in ranks else None

    @contextmanager
    def transferring(
        self, step: int | None = None, batch: int | None = None, peers: tuple[int, ...] = ()
    ) -> Iterator[None]:
        """Turn what a transfer raises into a `CommunicationError`, and tell the other ranks."""
        try:
            with self.watch.transfer(step, batch):
                yield
        except RuntimeError as error:
            blamed = error.peers if isinstance(error, PeerError) else peers
            raise self.watch.failed(
                first_line(error), step=step, batch=batch, peers=blamed
            ) from error
        except CommunicationError:
            raise
        except Exception as error:
            self.report(error, step, batch)
            raise

    def leave(self) -> None:
        """Leave the job. Every executor has to be closed before.

        The rank that holds the store, if no launcher does, waits for the others to leave too, up to
        the time-out.
        """
        self.watch.leave()
        if distributed.is_initialized():
            distributed.destroy_process_group()
        self.watch.wait_for_others()


def join(timeout_s: float = 30.0, interfaces: Sequence[str] | None = None) -> World:
    """Join the job a launcher has started this process for.

    Parameters
    ----------
    timeout_s : float
        How long to wait for a rank, here and in every transfer.
    interfaces : sequence of str, optional
        Network interfaces to use: the one for everything, or, of a BCube, that of each level. By
        default those in ``PLANNER_INTERFACES``, separated by commas, if that is set. Several do not
        move what all ranks do together, as no level need reach them all: that goes over gloo's
        choice, or ``GLOO_SOCKET_IFNAME``.

    Raises
    ------
    InvalidInputError
        If the environment does not say which rank of which job this is.
    CommunicationError
        If a rank does not arrive in time; the message names all that are missing.
    """
    rank, size, host, port = job()
    if distributed.is_initialized():
        raise InvalidInputError(
            "", "torch.distributed is initialised already: let join do it, and use World.group"
        )
    if not 0 < timeout_s <= 10**6:
        raise InvalidInputError("timeout_s", f"expected seconds > 0, got {timeout_s}")
    chosen = tuple(interfaces if interfaces is not None else listed("PLANNER_INTERFACES"))
    known = [name for _, name in socket.if_nameindex()]
    for name in chosen:
        if name not in known:
            raise InvalidInputError(
                "interfaces", f"no network interface {name}; there are {', '.join(sorted(known))}"
            )
    holds_store = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        plain: Any = reach(host, port, size, hold=holds_store, timeout_s=timeout_s)
    except (RuntimeError, ValueError) as error:
        if holds_store:
            raise CommunicationError(
                f"rank 0 cannot listen at {host}:{port}: {first_line(error)}", peers=(0,)
            ) from error
        raise CommunicationError(
            f"rank {rank} found nobody at {host}:{port} within {timeout_s:g} s "
            f"(rank 0, or the launcher, has not started there, or hangs): {first_line(error)}",
            peers=(0,) if rank else (),
        ) from error
    store, apart = _own(plain, rank, timeout_s)
    _meet(store, rank, size, timeout_s)
    limit = timedelta(seconds=timeout_s)
    names = chosen or listed("GLOO_SOCKET_IFNAME")
    watch = Watch(apart, rank, size, names, timeout_s=timeout_s, holds_store=holds_store)
    try:
        with _on(_only(chosen)):
            within(
                timeout_s + 1,
                lambda: distributed.init_process_group(
                    "gloo",
                    store=PrefixStore("gloo", store),
                    rank=rank,
                    world_size=size,
                    timeout=limit,
                ),
                watch.check,
            )
    except RuntimeError as error:
        raise watch.failed(f"no connection to the other ranks: {first_line(error)}") from error
    return World(rank, size, timeout_s, chosen, store, distributed.group.WORLD, watch)


def _only(interfaces: Sequence[str]) -> str | None:
    return interfaces[0] if len(interfaces) == 1 else None


@contextmanager
def _on(interface: str | None) -> Iterator[None]:
    """Let gloo use one network interface, in the way it is told: by a variable."""
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    try:
        yield
    finally:
        if interface is not None:
            os.environ.pop("GLOO_SOCKET_IFNAME")
            if before is not None:
                os.environ["GLOO_SOCKET_IFNAME"] = before


def _own(plain: Any, rank: int, timeout_s: float) -> tuple[Store, Store]:
    """Return the part of a store that belongs to this job, and another one for the watch.

    A launcher's store outlives jobs: a process may join again, or be started again.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        turn = within(timeout_s, lambda: plain.add(f"planner/{attempt}/joins/{rank}", 1))
        prefix = f"planner/{attempt}/{turn}"
        apart = PrefixStore(f"{prefix}/watch", within(timeout_s, plain.clone))
    except RuntimeError as error:
        raise _lost(rank, error) from error
    return PrefixStore(prefix, plain), apart


def _lost(rank: int, error: Exception) -> CommunicationError:
    return CommunicationError(
        f"rank 0, or the launcher, has ended or hangs: {first_line(error)}",
        peers=(0,) if rank else (),
    )


def _meet(store: Store, rank: int, size: int, timeout_s: float) -> None:
    """Wait until all ranks are there; whoever misses one first tells the others."""
    try:
        within(timeout_s, lambda: store.set(f"arrived/{rank}", "1"))
        keys = [f"arrived/{one}" for one in range(size)]
        absent = missing(store, keys, timeout_s, over="absent")
        if absent:
            said = within(2, lambda: store.compare_set("absent", "", json.dumps(absent)))
            absent = tuple(json.loads(said))
    except RuntimeError as error:
        raise _lost(rank, error) from error
    if absent:
        there = [one for one in range(size) if one not in absent]
        hand_out(store, "absent", rank, there, grace_s(timeout_s))
        raise CommunicationError(
            f"{_ranks(absent)} did not arrive within {timeout_s:g} s", peers=absent
        )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
