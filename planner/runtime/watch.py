"""Notices that a rank of the job has failed, on every rank, and says which.

Problem. When a rank fails, its partners notice at their next transfer with it, others later or not
at all, and none of them knows what happened.

Method. Each rank runs a thread that looks into the job's store several times a second. Whoever
notices trouble first writes a record there. The threads of all ranks see it and answer a roll call
with what is wrong on their machine, computing or not. After a grace period those without an answer
are known to be dead or cut off, and every rank wakes up with the same record.

Guarantee. Once a rank has noticed, every living one that reaches the store stops waiting within
the grace period and a few looks.

Complexity. A few small messages a second and rank.
"""

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed.distributed_c10d import Store

from planner.errors import CommunicationError

__all__ = ["Watch"]

_INTERVAL_S = 0.1
_GRACE_S = 1.5
"""How long the roll call waits for answers: many looks."""
_STORE_TIMEOUT = timedelta(seconds=2)


class Watch:
    """One rank's view of whether the job is alive.

    Parameters
    ----------
    store : Store
        What all ranks share; this object uses it alone.
    rank, size : int
        This rank, and how many there are.
    interfaces : tuple of str
        Network interfaces whose state this rank reports.
    """

    def __init__(
        self, store: Store, rank: int, size: int, interfaces: tuple[str, ...] = ()
    ) -> None:
        store.set_timeout(_STORE_TIMEOUT)
        self._store = store
        self._rank = rank
        self._size = size
        self._interfaces = interfaces
        self._stop = threading.Event()
        self._own: dict[str, Any] | None = None
        self._error: CommunicationError | None = None
        self._settled = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="planner-watch", daemon=True)
        self._thread.start()

    @property
    def error(self) -> CommunicationError | None:
        """What has happened; None while all is well."""
        return self._error

    def check(self) -> None:
        """Raise what has happened, if anything has."""
        if self._error is not None:
            raise self._error

    def failed(
        self,
        reason: str,
        *,
        step: int | None = None,
        batch: int | None = None,
        peers: tuple[int, ...] = (),
        at_fault: bool = False,
    ) -> CommunicationError:
        """Tell all ranks what this one has noticed, and return what is known after the roll call.

        Parameters
        ----------
        reason : str
            What was noticed.
        step, batch : int, optional
            In which step and batch.
        peers : tuple of int
            Ranks it comes from, if that is known.
        at_fault : bool
            Whether it is this rank that cannot go on.
        """
        with self._settled:
            if self._own is None:
                self._own = {
                    "rank": self._rank,
                    "reason": reason,
                    "step": step,
                    "batch": batch,
                    "peers": [self._rank] if at_fault else list(peers),
                    "at_fault": at_fault,
                }
            self._settled.wait_for(lambda: self._error is not None, timeout=_GRACE_S + 4)
        return self._error or self._described(self._own, (), {})

    def leave(self) -> None:
        """Stop watching; transfers that still wait for this rank fail with that reason."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._stop.wait(_INTERVAL_S):
                if self._own is not None:
                    self._store.compare_set("failed", "", json.dumps(self._own))
                if self._own is not None or self._store.check(["failed"]):
                    self._settle(self._roll_call())
                    return
            self._store.set(f"left/{self._rank}", "1")
        except RuntimeError as error:  # the store: distributed.DistError and its children
            if not self._stop.is_set():
                self._settle(self._cut_off(error))

    def _cut_off(self, error: Exception) -> CommunicationError:
        own = self._own or {"reason": None, "step": None, "batch": None}
        where = "".join(
            f"{name} {own[name]}, " for name in ("step", "batch") if own[name] is not None
        )
        before = f"; before that: {own['reason']}" if own["reason"] else ""
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return CommunicationError(
            f"{where}the job's store cannot be reached: rank 0, or the launcher that holds it, has "
            f"ended or is cut off ({line}){before}",
            step=own["step"],
            batch=own["batch"],
            peers=(0,) if self._rank else (),
        )

    def _settle(self, error: CommunicationError) -> None:
        with self._settled:
            self._error = error
            self._settled.notify_all()

    def _roll_call(self) -> CommunicationError:
        """Answer the roll call and wait for the others' answers."""
        record: dict[str, Any] = json.loads(self._store.get("failed"))
        self._store.set(f"here/{self._rank}", json.dumps(_down(self._interfaces)))
        others = range(self._size)
        pause = threading.Event()
        for _ in range(round(_GRACE_S / _INTERVAL_S)):
            missing = tuple(rank for rank in others if not self._store.check([f"here/{rank}"]))
            if not missing:
                break
            pause.wait(_INTERVAL_S)
        down = {
            rank: names
            for rank in others
            if rank not in missing and (names := json.loads(self._store.get(f"here/{rank}")))
        }
        gone = {rank for rank in missing if self._store.check([f"left/{rank}"])}
        error = self._described(record, missing, down, gone)
        self._linger()
        return error

    def _linger(self) -> None:
        """Whoever holds the store stays until all have read what they need."""
        self._store.set(f"read/{self._rank}", "1")

    def _described(
        self,
        record: dict[str, Any],
        missing: tuple[int, ...],
        down: dict[int, list[str]],
        gone: set[int] | None = None,
    ) -> CommunicationError:
        where = [f"{name} {record[name]}" for name in ("step", "batch") if record[name] is not None]
        dead = [rank for rank in missing if not gone or rank not in gone]
        said = []
        if record["at_fault"]:
            said.append(f"rank {record['rank']} stopped: {record['reason']}")
        said += [f"rank {rank} has left the job" for rank in sorted(gone or ())]
        said += [f"rank {rank} does not answer: it was killed or is cut off" for rank in dead]
        said += [
            f"interface {name} of rank {rank} is down"
            for rank, names in down.items()
            for name in names
        ]
        if not record["at_fault"]:
            peers = "".join(f" with rank {peer}" for peer in record["peers"])
            said.append(f"noticed by rank {record['rank']}{peers}: {record['reason']}")
        blamed = {*missing, *down} or set(record["peers"])
        return CommunicationError(
            f"{', '.join(where)}: {'; '.join(said)}" if where else "; ".join(said),
            step=record["step"],
            batch=record["batch"],
            peers=tuple(sorted(blamed)),
        )


def _down(interfaces: tuple[str, ...]) -> list[str]:
    """Return the interfaces that are not up, as far as Linux says."""
    found = []
    for name in interfaces:
        state = Path("/sys/class/net") / name / "operstate"
        try:
            if state.read_text().strip() == "down":
                found.append(name)
        except OSError:
            continue
    return found
