"""The verdict on a failure: one error for all ranks, from a record and the ranks' answers."""

import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from planner.model.errors import CommunicationError

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
    where = [f"{name} {record[name]}" for name in ("step", "batch") if record[name] is not None]
    blamed = {*missing, *gone, *cut, *late} or set(record["peers"])
    if record["at_fault"]:
        blamed.add(record["rank"])
    return CommunicationError(
        f"{', '.join(where)}: {'; '.join(reasons)}" if where else "; ".join(reasons),
        step=record["step"],
        batch=record["batch"],
        peers=tuple(sorted(blamed)),
    )


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
