"""Rendezvous of a job's ranks.

Ranks meet in torch's store, at the ``MASTER_ADDR`` and ``MASTER_PORT`` that every launcher sets,
and form gloo's process groups there. If `torch.distributed` is initialised already, as by trainers,
they meet in a part of its store and get a gloo group of their own.
Guarantee: `join` ends. If ranks do not arrive in time, every other rank learns which, as long as
the store answers.
Complexity: O(ranks) messages per rank.
"""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

from planner.model.errors import CommunicationError, InvalidInputError, PlannerError
from planner.runtime.world.store import first_line, hand_out, missing, reach, within
from planner.runtime.world.watch import Watch, down, timeout_margin_s
from planner.runtime.world.world import World, only, ranks_named


def join(timeout_s: float = 30.0, interfaces: Sequence[str] | None = None) -> World:
    """Join the job for which a launcher has started this process.

    If `torch.distributed` is initialised already, with any backend, all its ranks have to join, and
    are the ranks of the job. `torch.distributed` stays initialised when they leave.

    Parameters
    ----------
    timeout_s : float
        How long to wait for a rank, here and in every transfer.
    interfaces : sequence of str, optional
        Network interfaces: one for everything, or for a BCube one for each level. By default those
        in ``PLANNER_INTERFACES``, separated by commas, if it is set. With several interfaces, the
        communication between all ranks uses gloo's choice, or ``GLOO_SOCKET_IFNAME``, because no
        level need reach all ranks.

    Raises
    ------
    InvalidInputError
        If the environment does not define the rank and the job.
    PlannerError
        If `torch.distributed` was initialised without a store in which ranks can meet.
    CommunicationError
        If a rank does not arrive in time; the message names all missing ranks.
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
    limit = timedelta(seconds=timeout_s)

    def made() -> Any:
        if guest:
            return distributed.new_group(timeout=limit, backend="gloo")
        distributed.init_process_group(
            "gloo", store=PrefixStore("gloo", store), rank=rank, world_size=size, timeout=limit
        )
        return distributed.group.WORLD

    try:
        with _using(only(chosen)):
            group = within(timeout_s + 1, made, watch.check)
    except RuntimeError as error:
        raise watch.failed(f"no connection to the other ranks: {first_line(error)}") from error
    world = World(rank, size, timeout_s, chosen, store, group, watch, guest=guest)
    world.gather("having joined", "")  # a rank that left sooner would break others' joining
    return world


@contextmanager
def _using(interface: str | None) -> Iterator[None]:
    """Let gloo use one network interface, by its environment variable."""
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


def _store_of_launcher(timeout_s: float) -> Store:
    """Return the store at the launcher's address."""
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
    """Return a separate connection to the store that torch was initialised with."""
    try:
        theirs: Any = _get_default_store()
        store: Store = within(timeout_s, theirs.clone)
    except Exception as error:
        raise PlannerError(
            f"torch.distributed was initialised with {distributed.get_backend()}, and has no store "
            f"in which ranks can meet ({first_line(error)}): initialise it with gloo or nccl, or "
            "let join do it"
        ) from error
    return store


def _own(plain: Any, rank: int, timeout_s: float) -> tuple[Store, Store]:
    """Return this job's part of a store, and another part for the watch.

    A launcher's store outlives jobs: a process may join again, or be restarted. Without such a
    store restarts do not count, since each launcher counts only its own processes' failures.
    """
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if _launcher_holds_store() else "0"
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
    """Wait for all ranks; the first rank that misses one tells the others."""
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
        hand_out(store, "absent", rank, there, timeout_margin_s(timeout_s))
        raise CommunicationError(
            f"{ranks_named(absent)} did not arrive within {timeout_s:g} s", peers=absent
        )


# ---
# The environment variables of a launcher, such as torchrun.


_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MAX_RANKS = 2**16


def job() -> tuple[int, int, str, int]:
    """Return rank, number of ranks, host and port of this process's job.

    Without a launcher a `PlannerError` is raised, for invalid values an `InvalidInputError`.
    """
    for name in _VARIABLES:
        if name not in os.environ:
            raise PlannerError(
                f"{name} is not set: start the program with a launcher, such as "
                "torchrun --nproc-per-node 2 …"
            )
    numbers = []
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        text = os.environ[name]
        if not text.isdecimal() or int(text) > _MAX_RANKS:
            raise InvalidInputError(name, f"expected a number, got {text!r}")
        numbers.append(int(text))
    rank, size, port = numbers
    if rank >= size:
        raise InvalidInputError("RANK", f"expected less than WORLD_SIZE ({size}), got {rank}")
    return rank, size, os.environ["MASTER_ADDR"], port


def holds_store(rank: int) -> bool:
    """Return whether the store ends with the process of this rank: no launcher holds it."""
    return rank == 0 and not _launcher_holds_store()


def _launcher_holds_store() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def listed(variable: str) -> tuple[str, ...]:
    """Return the comma-separated names in a variable; none if it is not set."""
    return tuple(name for name in os.environ.get(variable, "").split(",") if name)
