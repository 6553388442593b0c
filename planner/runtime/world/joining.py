"""Joining a job: how its ranks find each other.

Rendezvous is torch's own: its store, at the address every launcher gives by ``MASTER_ADDR`` and
``MASTER_PORT``, and gloo's process groups on top of it. Where `torch.distributed` is initialised
already, as trainers do it, the job is that one: ranks meet in a part of its store, and get a group
of gloo beside what is there.

Guarantee: `join` ends; unless all ranks arrive within the time-out, each that did learns which did
not, as far as the store still answers. Complexity: O(ranks) messages a rank. Source: own.
"""

import json
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

from planner.errors import CommunicationError, InvalidInputError, PlannerError
from planner.runtime.world.interfaces import only, using
from planner.runtime.world.launcher import attempt, holds_store, job, listed
from planner.runtime.world.store import first_line, hand_out, missing, reach, within
from planner.runtime.world.verdict import down
from planner.runtime.world.watch import Watch, grace_s
from planner.runtime.world.world import World, new_gloo_group, ranks_named

__all__ = ["join"]


def join(timeout_s: float = 30.0, interfaces: Sequence[str] | None = None) -> World:
    """Join the job a launcher has started this process for.

    If `torch.distributed` is initialised already, the job is the one it knows of, whatever its
    backend; all its ranks have to join. It stays as it is, also when they leave.

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
    PlannerError
        If what `torch.distributed` was initialised with has no ranks to meet.
    CommunicationError
        If a rank does not arrive in time; the message names all that are missing.
    """
    guest = distributed.is_initialized()
    rank, size = (distributed.get_rank(), distributed.get_world_size()) if guest else job()[:2]
    if not 0 < timeout_s <= 10**6:
        raise InvalidInputError("timeout_s", f"expected seconds > 0, got {timeout_s}")
    chosen = tuple(interfaces if interfaces is not None else listed("PLANNER_INTERFACES"))
    known = [name for _, name in socket.if_nameindex()]
    for name in chosen:
        if name not in known:
            raise InvalidInputError(
                "interfaces", f"no network interface {name}; there are {', '.join(sorted(known))}"
            )
    plain = _store_beside(timeout_s) if guest else _store_of_launcher(timeout_s)
    store, apart = _own(plain, rank, timeout_s)
    _meet(store, rank, size, timeout_s)
    names = chosen or tuple(listed("GLOO_SOCKET_IFNAME"))
    watch = Watch(apart, rank, size, names, timeout_s=timeout_s, holds_store=holds_store(rank))
    for name in down((*chosen,) if len(chosen) == 1 else listed("GLOO_SOCKET_IFNAME")):
        raise watch.failed(f"interface {name}, which all ranks talk over, is down", at_fault=True)
    if guest:
        group = new_gloo_group(range(size), rank, timeout_s, only(chosen), watch)
        return World(rank, size, timeout_s, chosen, store, group, watch, guest=True)
    try:
        with using(only(chosen)):
            within(
                timeout_s + 1,
                lambda: distributed.init_process_group(
                    "gloo",
                    store=PrefixStore("gloo", store),
                    rank=rank,
                    world_size=size,
                    timeout=timedelta(seconds=timeout_s),
                ),
                watch.check,
            )
    except RuntimeError as error:
        raise watch.failed(f"no connection to the other ranks: {first_line(error)}") from error
    return World(rank, size, timeout_s, chosen, store, distributed.group.WORLD, watch)


def _store_of_launcher(timeout_s: float) -> Store:
    """Return the store at the address that the launcher says."""
    rank, size, host, port = job()
    hold = holds_store(rank)
    try:
        return reach(host, port, size, hold=hold, timeout_s=timeout_s)
    except (RuntimeError, ValueError) as error:
        if hold:
            raise CommunicationError(
                f"rank 0 cannot listen at {host}:{port}: {first_line(error)}", peers=(0,)
            ) from error
        raise CommunicationError(
            f"rank {rank} found nobody at {host}:{port} within {timeout_s:g} s "
            f"(rank 0, or the launcher, has not started there, or hangs): {first_line(error)}",
            peers=(0,) if rank else (),
        ) from error


def _store_beside(timeout_s: float) -> Store:
    """Return a connection of our own to the store that torch was initialised with."""
    backend = distributed.get_backend()
    if not distributed.is_gloo_available():
        raise PlannerError("this torch was built without gloo, which moves what plans say")
    try:
        theirs: Any = _get_default_store()
        store: Store = within(timeout_s, theirs.clone)
    except Exception as error:
        raise PlannerError(
            f"torch.distributed was initialised with {backend}, and has no store in which ranks "
            f"can meet ({first_line(error)}): initialise it with gloo or nccl, or let join do it"
        ) from error
    return store


def _own(plain: Any, rank: int, timeout_s: float) -> tuple[Store, Store]:
    """Return the part of a store that belongs to this job, and another one for the watch.

    A launcher's store outlives jobs: a process may join again, or be started again.
    """
    start = attempt()
    try:
        turn = within(timeout_s, lambda: plain.add(f"planner/{start}/joins/{rank}", 1))
        prefix = f"planner/{start}/{turn}"
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
        keys = [f"arrived/{peer}" for peer in range(size)]
        absent = missing(store, keys, timeout_s, over="absent")
        if absent:
            agreed = within(2, lambda: store.compare_set("absent", "", json.dumps(absent)))
            absent = tuple(json.loads(agreed))
    except RuntimeError as error:
        raise _lost(rank, error) from error
    if absent:
        there = [peer for peer in range(size) if peer not in absent]
        hand_out(store, "absent", rank, there, grace_s(timeout_s))
        raise CommunicationError(
            f"{ranks_named(absent)} did not arrive within {timeout_s:g} s", peers=absent
        )
