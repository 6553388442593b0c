"""The ranks of a job: how they find each other, agree, and learn that one of them has failed.

Rendezvous is torch's own: its store, at the address every launcher gives by ``MASTER_ADDR`` and
``MASTER_PORT``, and gloo's process groups on top of it.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store

from planner.errors import CommunicationError, DisagreementError, InvalidInputError, PlannerError
from planner.runtime.watch import Watch

__all__ = ["PeerError", "World", "first_line", "join"]

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LOOK_S = 0.05
_MAX_RANKS = 2**16


class PeerError(RuntimeError):
    """A transfer failed, and it is known with whom."""

    def __init__(self, message: str, peers: tuple[int, ...]) -> None:
        super().__init__(message)
        self.peers = peers


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """All ranks of a job, seen from one of them.

    Attributes
    ----------
    rank, size : int
        This rank, and how many there are.
    timeout_s : float
        How long a transfer may wait for its partner.
    interfaces : tuple of str
        Network interfaces to use, level by level; empty: gloo's choice.
    store : Store
        What all ranks share.
    group : ProcessGroup
        All of them.
    watch : Watch
        Whether all is well.
    """

    rank: int
    size: int
    timeout_s: float
    interfaces: tuple[str, ...]
    store: Store
    group: Any
    watch: Watch

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
            ranks = ", ".join(map(str, different))
            raise DisagreementError(
                f"the ranks do not agree on {what}: rank {ranks} "
                f"{'differs' if len(different) == 1 else 'differ'} from rank 0",
                different,
            )

    def gather(self, what: str, value: str) -> tuple[str, ...]:
        """Return the values of all ranks for a name that is used once.

        Raises
        ------
        CommunicationError
            If a rank gives none in time.
        """
        self.store.set(f"{what}/{self.rank}", value)
        keys = [f"{what}/{rank}" for rank in range(self.size)]
        missing = _missing(self.store, keys, self.timeout_s, self.watch)
        if missing:
            reason = f"no word from {_ranks(missing)} within {self.timeout_s:g} s about {what}"
            raise self.watch.failed(reason, peers=missing)
        return tuple(self.store.get(key).decode() for key in keys)

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
        """Return a process group of some ranks, on one network interface; None for others.

        Every rank has to call it, in the same order.
        """
        before = os.environ.get("GLOO_SOCKET_IFNAME")
        if interface is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = interface
        try:
            made = distributed.new_group(
                list(ranks), timeout=timedelta(seconds=self.timeout_s), backend="gloo"
            )
        except RuntimeError as error:
            raise self.watch.failed(f"no group of {_ranks(ranks)}: {first_line(error)}") from error
        finally:
            if interface is not None:
                if before is None:
                    del os.environ["GLOO_SOCKET_IFNAME"]
                else:
                    os.environ["GLOO_SOCKET_IFNAME"] = before
        return made if self.rank in ranks else None

    @contextmanager
    def transferring(
        self, step: int | None = None, batch: int | None = None, peers: tuple[int, ...] = ()
    ) -> Iterator[None]:
        """Turn what a transfer raises into a `CommunicationError`, and tell the other ranks."""
        try:
            yield
        except RuntimeError as error:
            blamed = error.peers if isinstance(error, PeerError) else peers
            raise self.watch.failed(
                first_line(error), step=step, batch=batch, peers=blamed
            ) from error

    def leave(self) -> None:
        """Leave the job. Every executor has to be closed before."""
        failed = self.watch.error is not None
        self.watch.leave()
        if self.rank == 0 and failed:  # the store may be this process's
            _missing(self.store, [f"read/{rank}" for rank in range(self.size)], 2.0)
        if distributed.is_initialized():
            distributed.destroy_process_group()


def join(timeout_s: float = 30.0, interfaces: Sequence[str] | None = None) -> World:
    """Join the job a launcher has started this process for.

    Parameters
    ----------
    timeout_s : float
        How long to wait for a rank, here and in every transfer.
    interfaces : sequence of str, optional
        Network interfaces to use, level by level; by default those in ``PLANNER_INTERFACES``,
        separated by commas, if that is set.

    Raises
    ------
    InvalidInputError
        If the environment does not say which rank of which job this is.
    CommunicationError
        If a rank does not arrive in time; the message names all that are missing.
    """
    rank, size, host, port = _environment()
    if not 0 < timeout_s <= 10**6:
        raise InvalidInputError("timeout_s", f"expected seconds > 0, got {timeout_s}")
    chosen = tuple(interfaces if interfaces is not None else _listed("PLANNER_INTERFACES"))
    known = {path.name for path in Path("/sys/class/net").glob("*")}  # empty where not Linux
    for name in chosen:
        if known and name not in known:
            raise InvalidInputError(
                "interfaces", f"no network interface {name}; there are {', '.join(sorted(known))}"
            )
    by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    limit = timedelta(seconds=timeout_s)
    try:
        plain = distributed.TCPStore(  # type: ignore[attr-defined]
            host, port, size, rank == 0 and not by_launcher, limit, wait_for_workers=False
        )
    except (RuntimeError, ValueError) as error:
        raise CommunicationError(
            f"rank {rank} found nobody at {host}:{port} within {timeout_s:g} s "
            f"(rank 0, or the launcher, has not started there): {first_line(error)}",
            peers=(0,) if rank else (),
        ) from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"planner/{attempt}", plain)
    store.set(f"arrived/{rank}", "1")
    missing = _missing(store, [f"arrived/{one}" for one in range(size)], timeout_s)
    if missing:
        raise CommunicationError(
            f"{_ranks(missing)} did not arrive within {timeout_s:g} s", peers=missing
        )
    names = chosen or _listed("GLOO_SOCKET_IFNAME")
    apart = plain.clone()  # type: ignore[attr-defined]
    watch = Watch(PrefixStore(f"planner/{attempt}/watch", apart), rank, size, names)
    try:
        distributed.init_process_group(
            "gloo",
            store=PrefixStore("gloo", store),
            rank=rank,
            world_size=size,
            timeout=limit,
        )
    except RuntimeError as error:
        raise watch.failed(f"no connection to the other ranks: {first_line(error)}") from error
    return World(rank, size, timeout_s, chosen, store, distributed.group.WORLD, watch)


def first_line(error: BaseException) -> str:
    """Return what an error says, without what follows on other lines, and where gloo was."""
    line = (str(error).splitlines() or [""])[0] or type(error).__name__
    if line.startswith("[") and "] " in line:  # [/path/of/gloo/pair.cc:537] Read error …
        line = line.partition("] ")[2]
    return line.partition(". This is typically")[0]


def _environment() -> tuple[int, int, str, int]:
    values = {}
    for name in _VARIABLES:
        text = os.environ.get(name)
        if text is None:
            raise PlannerError(
                f"{name} is not set: start the program with a launcher, such as "
                "torchrun --nproc-per-node 2 …"
            )
        values[name] = text
    numbers = {}
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        if not values[name].isdecimal() or int(values[name]) > _MAX_RANKS:
            raise InvalidInputError(name, f"expected a number, got {values[name]!r}")
        numbers[name] = int(values[name])
    rank, size = numbers["RANK"], numbers["WORLD_SIZE"]
    if rank >= size:
        raise InvalidInputError("RANK", f"expected less than WORLD_SIZE ({size}), got {rank}")
    return rank, size, values["MASTER_ADDR"], numbers["MASTER_PORT"]


def _listed(variable: str) -> tuple[str, ...]:
    return tuple(name for name in os.environ.get(variable, "").split(",") if name)


def _missing(
    store: Store, keys: Sequence[str], timeout_s: float, watch: Watch | None = None
) -> tuple[int, ...]:
    """Wait until a store has all keys; return the positions of those it does not have in time."""
    end = time.monotonic() + timeout_s
    missing = list(range(len(keys)))
    try:
        while True:
            missing = [place for place in missing if not store.check([keys[place]])]
            if not missing or time.monotonic() >= end:
                return tuple(missing)
            if watch is not None:
                watch.check()
            time.sleep(_LOOK_S)
    except RuntimeError as error:
        raise CommunicationError(
            f"the job's store cannot be reached any more: {first_line(error)}", peers=(0,)
        ) from error


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
