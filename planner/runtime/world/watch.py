"""Failure detection: every rank learns which rank has failed.

Method: A thread per rank polls the job's store. The first rank that notices a problem writes a
record. The threads of all ranks then answer a roll call with their progress and the state of their
machine. After all answers, or a grace period, the first rank to finish writes a report: who is
dead or cut off, has left, has an interface down, or is behind. Every rank raises that same report.
The rank that holds the store ends last.
Guarantee: After a notice, every living rank that reaches the store stops waiting within the grace
period and a few polls; any other within its next transfer's time-out and the grace period.
Complexity: A few small messages per second and rank.
"""

import atexit
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import Store

from planner.model.errors import CommunicationError
from planner.runtime.world.store import first_line

_INTERVAL_S = 0.1
_STORE_TIMEOUT = timedelta(seconds=2)


def timeout_margin_s(timeout_s: float) -> float:
    """Return how long a roll call waits for missing answers (s).

    The time suffices on a busy machine, and is short compared with the time-out.
    """
    return min(max(timeout_s / 2, 1.0), 10.0)


class Watch:
    """One rank's view of whether the job is alive.

    Only this object uses `store`. It reports the state of `interfaces`. `holds_store` says whether
    the store ends with this process.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        interfaces: tuple[str, ...] = (),
        *,
        timeout_s: float = 30.0,
        holds_store: bool = False,
    ) -> None:
        store.set_timeout(_STORE_TIMEOUT)
        self.step: int | None = None
        """The current training step of this rank."""
        self._store = store
        self._rank = rank
        self._size = size
        self._interfaces = interfaces
        self._timeout_s = timeout_s
        self._grace_s = timeout_margin_s(timeout_s)
        self._holds_store = holds_store
        self._transfer: tuple[int | None, int | None] | None = None
        self._transfers = 0
        self._stop = threading.Event()
        self._departed = threading.Event()
        self._answered_at = time.monotonic()
        self._own: dict[str, Any] | None = None
        self.error: CommunicationError | None = None
        """The failure of the job; None while there is none."""
        self._settled = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="planner-watch", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)

    def check(self) -> None:
        """Raise the failure of the job, if there is one."""
        if self.error is not None:
            raise self.error

    @contextmanager
    def transfer(self, step: int | None, batch: int | None) -> Iterator[None]:
        """Record the start and the successful end of a transfer, the same on all ranks."""
        before = self._transfer
        self._transfers += 1
        self._transfer = step, batch
        yield
        self._transfer = before

    def failed(
        self,
        reason: str,
        *,
        step: int | None = None,
        batch: int | None = None,
        peers: tuple[int, ...] = (),
        at_fault: bool = False,
    ) -> CommunicationError:
        """Report a problem to all ranks; return the common failure report after the roll call.

        `peers` are the ranks that caused it, if known; `at_fault` says that this rank cannot go on.
        """
        with self._settled:
            step = self.step if step is None else step
            blamed = (self._rank,) if at_fault else peers
            self._note(reason=reason, step=step, batch=batch, peers=blamed, at_fault=at_fault)
            while self.error is None:
                self._settled.wait(_INTERVAL_S)
                silence = time.monotonic() - self._answered_at
                if self.error is None and not self._thread.is_alive():
                    self.error = verdict_error({"record": self._own})
                elif self.error is None and silence > self._grace_s + 1:
                    self.error = self._cut_off(f"no answer for {silence:.1f} s")
            return self.error

    def leave(self) -> None:
        """Stop watching; later transfers with this rank fail, with its departure as the reason."""
        atexit.unregister(self._at_exit)
        self._stop.set()
        self._departed.wait(_INTERVAL_S if self.error else self._grace_s + 1)

    def wait_for_others(self) -> None:
        """Wait, up to the time-out, until no rank needs this process's store.

        Ranks do not wait if a launcher holds the store.
        """
        self._thread.join(self._timeout_s + 1 if self._holds_store else 1)

    def _at_exit(self) -> None:
        """Leave the job at interpreter exit, before threads become unsafe."""
        self.leave()
        self.wait_for_others()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_INTERVAL_S):
                if self._own is None and self._transfer is not None and self._has("leaving"):
                    self._notice_left()
                if self._own is not None:
                    self._store.compare_set("failed", "", json.dumps(self._own))
                if self._own is not None or self._has("failed"):
                    error = self._roll_call()
                    self._settle(error)
                    return
            self._store.set(f"left/{self._rank}", str(self._transfers))
            self._store.set("leaving", "1")
            self._departed.set()
            self._linger(range(self._size), self._timeout_s)
        except RuntimeError as error:  # the store: distributed.DistError and its children
            if not self._stop.is_set() or self._own is not None:
                self._settle(self._cut_off(first_line(error)))
        finally:
            self._departed.set()

    def _note(self, **problem: Any) -> None:
        """Remember the first problem of this rank, with the arguments of `failed`."""
        if self._own is None:
            self._own = {"rank": self._rank, "transfers": self._transfers, **problem}

    def _notice_left(self) -> None:
        """Record a problem if a rank has left that the current transfer needs."""
        transfer, transfers = self._transfer, self._transfers
        left = [rank for rank in range(self._size) if self._has(f"left/{rank}")]
        away = [rank for rank in left if int(self._store.get(f"left/{rank}")) < transfers]
        if transfer is not None and away:
            (step, batch), reason = transfer, "a transfer without it"
            with self._settled:
                self._note(reason=reason, step=step, batch=batch, peers=away, at_fault=False)

    def _has(self, key: str) -> bool:
        there = self._store.check([key])
        self._answered_at = time.monotonic()
        return there

    def _heard(self, ranks: Iterable[int], what: str, limit_s: float) -> dict[int, str]:
        """Wait, up to the limit, until ranks have done `what` or left; return which, by rank."""
        missing, heard, end = set(ranks), dict[int, str](), time.monotonic() + limit_s
        while True:
            for rank in sorted(missing):
                done = next((key for key in (what, "left") if self._has(f"{key}/{rank}")), None)
                if done is not None:
                    heard[rank] = done
            missing -= heard.keys()
            decided = what == "here" and self._has("verdict")
            if not missing or decided or time.monotonic() >= end:
                return heard
            time.sleep(_INTERVAL_S)

    def _cut_off(self, what: str) -> CommunicationError:
        """Return the error for a store that cannot be reached."""
        step, batch = self._transfer or (self.step, None)
        own = self._own or {"step": step, "batch": batch, "reason": None}
        before = f"; before that: {own['reason']}" if own["reason"] else ""
        return CommunicationError(
            f"{_place(own)}the job's store cannot be reached: rank 0, or the "
            f"launcher that holds it, has ended, hangs or is cut off ({what}){before}",
            step=own["step"],
            batch=own["batch"],
            peers=(0,) if self._rank else (),
        )

    def _settle(self, error: CommunicationError) -> None:
        with self._settled:
            self.error = self.error or error
            self._settled.notify_all()

    def _roll_call(self) -> CommunicationError:
        """Answer the roll call, collect the other answers, and return the common failure report."""
        record: dict[str, Any] = json.loads(self._store.get("failed"))
        answer = {"down": down(self._interfaces), "transfers": self._transfers}
        self._store.set(f"here/{self._rank}", json.dumps(answer))
        heard = self._heard(range(self._size), "here", self._grace_s)
        here = [rank for rank in sorted(heard) if heard[rank] == "here"]
        mine = {
            "record": record,
            "missing": sorted(set(range(self._size)) - heard.keys()),
            "gone": sorted(heard.keys() - set(here)),
            "answers": {rank: json.loads(self._store.get(f"here/{rank}")) for rank in here},
        }
        agreed = self._store.compare_set("verdict", "", json.dumps(mine))
        verdict: dict[str, Any] = json.loads(agreed)
        self._store.set(f"read/{self._rank}", "1")
        self._linger(map(int, verdict["answers"]), self._grace_s)
        return verdict_error(verdict)

    def _linger(self, others: Iterable[int], limit_s: float) -> None:
        """Keep this process's store, if it has one, until the other ranks are done with it."""
        if self._holds_store:
            self._heard(others, "read", limit_s)


# ---
# The failure report: one error for all ranks, from a record and the answers.


_SIOCGIFFLAGS = 0x8913
_UP_AND_RUNNING = 0x1 | 0x40


def verdict_error(verdict: Mapping[str, Any]) -> CommunicationError:
    """Return the error that all ranks raise.

    Keys: "record" holds the first notice, with the arguments of `Watch.failed`, "rank" and
    "transfers". "answers" holds by rank (as text) the interfaces that are "down" and the number of
    begun "transfers". "gone" lists the ranks that have left, "missing" those that did not answer.
    """
    record = verdict["record"]
    missing, gone = verdict.get("missing", []), verdict.get("gone", [])
    answers = {int(rank): answer for rank, answer in verdict.get("answers", {}).items()}
    cut = {rank: answer["down"] for rank, answer in answers.items() if answer["down"]}
    reasons, late = [], []
    if record["at_fault"]:
        reasons.append(f"rank {record['rank']} stopped: {record['reason']}")
    elif not (missing or gone or cut) and record["batch"] is not None:
        late = [
            rank for rank, answer in answers.items() if answer["transfers"] < record["transfers"]
        ]
    reasons += [f"rank {rank} has left the job" for rank in gone]
    reasons += [
        f"rank {rank} does not answer: it was killed, has ended, hangs or is cut off"
        for rank in missing
    ]
    reasons += [f"interface {name} of rank {rank} is down" for rank in cut for name in cut[rank]]
    reasons += [
        f"rank {rank} has not begun this transfer: it still computes or hangs" for rank in late
    ]
    if not record["at_fault"]:
        peers = "".join(f" with rank {peer}" for peer in record["peers"])
        reasons.append(f"noticed by rank {record['rank']}{peers}: {record['reason']}")
    blamed = {*missing, *gone, *cut, *late} or set(record["peers"])
    if record["at_fault"]:
        blamed.add(record["rank"])
    return CommunicationError(
        f"{_place(record)}{'; '.join(reasons)}",
        step=record["step"],
        batch=record["batch"],
        peers=tuple(sorted(blamed)),
    )


def _place(record: Mapping[str, Any]) -> str:
    """Return the step and the batch of a record, as the beginning of a message."""
    known = [f"{name} {record[name]}" for name in ("step", "batch") if record[name] is not None]
    return f"{', '.join(known)}: " if known else ""


def down(interfaces: tuple[str, ...]) -> list[str]:
    """Return the interfaces that are down according to Linux.

    A socket is asked, because /sys shows the network namespace in which it was mounted, which may
    differ from this process's.
    """
    if sys.platform != "linux":
        return []
    import fcntl

    names = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for name in interfaces:
            request = struct.pack("16s24x", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFFLAGS, request)
            except OSError:  # the interface no longer exists
                names.append(name)
                continue
            (flags,) = struct.unpack_from("H", answer, 16)
            if flags & _UP_AND_RUNNING != _UP_AND_RUNNING:
                names.append(name)
    return names
