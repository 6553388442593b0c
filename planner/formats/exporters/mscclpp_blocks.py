"""Thread blocks of MSCCL++'s execution plans: operations with what keeps them in order.

Problem: operations have to take effect in order, but threads of a block wait for each other only at
``nop``, and blocks only at semaphores; a block has room for few operations, channels and buffers.
Method: waits, signals and puts over a port are done by the first threads, one per channel; all
threads add, and put into a peer's memory. A ``nop`` precedes an operation that needs what other
threads have done since the last one, so none stands between a wait and a put over the same single
channel: one thread does both. What does not fit opens the next block, behind a semaphore.
Complexity: linear in the operations. Source: own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

MAX_OPERATIONS = 64  # operations of a thread block
MAX_CHANNELS = 16  # channels of a thread block, and buffers of other ranks that it puts into
MAX_AT_ONCE = 8  # channels of an operation, and buffers that are added to another one

Channel = tuple[int, int, int]  # lane, link and peer

_WAITING = ("wait", "sem_acquire")
_SENDING = ("signal", "pws", "pwsf")
_BY_ALL = ("put", "re")
"""Operations by all threads; others are done by one thread per channel or semaphore."""


class Chunks(NamedTuple):
    """Chunks of a buffer: ``i`` is the gradient (input and output), ``s`` the scratch buffer.

    `peer` is the other rank whose buffer is written; None for this rank.
    """

    buffer: str
    first: int
    size: int
    peer: int | None = None


class Operation(NamedTuple):
    """An operation, before it has its place in a thread block."""

    name: str
    channels: tuple[Channel, ...] = ()
    sources: tuple[Chunks, ...] = ()
    targets: tuple[Chunks, ...] = ()

    def needs(self, before: "Operation") -> bool:
        """Whether this one must not begin before all threads have done an earlier one."""
        if before.name == "sem_acquire" and len(self.channels) > 1:
            return True  # one thread acquires for all
        for names in (_WAITING, _SENDING):
            if self.name in names and before.name in names:
                return any(
                    channel in before.channels and before.channels.index(channel) != thread
                    for thread, channel in enumerate(self.channels)
                )
        if self.name == "sem_release":
            return True
        if self.name in _WAITING or before.name in _SENDING:
            return False
        same = before.name not in _BY_ALL and self.name not in _BY_ALL
        return not (same and len(self.channels) == 1 and len(before.channels) <= 1)


class _Block:
    """A thread block that is being filled."""

    def __init__(self) -> None:
        self.operations: list[dict[str, Any]] = []
        self.since: list[Operation] = []  # the last nop
        self.channels: dict[Channel, int] = {}
        self.remotes: dict[tuple[int, str], int] = {}

    def has_room(self, operation: Operation) -> bool:
        """Whether the operation fits, with a ``nop`` before and a semaphore behind it."""
        channels = self.channels.keys() | set(operation.channels)
        remotes = self.remotes.keys() | set(_remotes(operation))
        return (
            len(self.operations) + 4 <= MAX_OPERATIONS
            and len(channels) <= MAX_CHANNELS
            and len(remotes) <= MAX_CHANNELS
        )

    def add(self, operation: Operation, kind: str, semaphore: int = -1) -> None:
        """Append an operation, with a ``nop`` if needed."""
        if any(operation.needs(before) for before in self.since):
            self.operations.append({"name": "nop"})
            self.since = []
        self.since.append(operation)
        for channel in operation.channels:
            self.channels.setdefault(channel, len(self.channels))
        for remote in _remotes(operation):
            self.remotes.setdefault(remote, len(self.remotes))
        written: dict[str, Any] = {"name": operation.name}
        if operation.sources:
            written["src_buff"] = [self._chunks(chunks) for chunks in operation.sources]
            written["dst_buff"] = [self._chunks(chunks) for chunks in operation.targets]
        if operation.channels:
            written["channel_ids"] = [self.channels[channel] for channel in operation.channels]
            written["channel_type"] = kind
        elif operation.sources:
            written["reduce_op"] = "sum"
        if semaphore >= 0:
            written["semaphore_ids"] = [semaphore]
        self.operations.append(written)

    def _chunks(self, chunks: Chunks) -> dict[str, Any]:
        place: dict[str, Any] = {"type": chunks.buffer}
        if chunks.peer is not None:
            place = {"buffer_id": self.remotes[chunks.peer, chunks.buffer]}
        return {**place, "index": chunks.first, "size": chunks.size}


def _remotes(operation: Operation) -> Iterable[tuple[int, str]]:
    return [(chunks.peer, chunks.buffer) for chunks in operation.targets if chunks.peer is not None]


class Rank:
    """The thread blocks of a rank, on channels of one kind, ``port`` or ``memory``.

    Channels of two ranks are matched in the order in which both list them.
    """

    def __init__(self, channels: Iterable[Channel], kind: str) -> None:
        self._channels: Mapping[Channel, int] = {
            channel: number for number, channel in enumerate(channels)
        }
        self._kind = kind
        self._blocks: list[_Block] = []
        self._semaphores = 0

    def chain(self, operations: Iterable[Operation]) -> None:
        """Add operations that follow each other, in as many blocks as they need."""
        block: _Block | None = None
        for operation in operations:
            if block is None or not block.has_room(operation):
                following = _Block()
                if block is not None:
                    block.add(Operation("sem_release"), self._kind, self._semaphores)
                    following.add(Operation("sem_acquire"), self._kind, self._semaphores)
                    self._semaphores += 1
                self._blocks.append(following)
                block = following
            block.add(operation, self._kind)

    @property
    def blocks(self) -> int:
        """Number of thread blocks."""
        return len(self._blocks)

    def written(self) -> dict[str, Any]:
        """Return the thread blocks and what they refer to, as plain values."""
        kind = self._kind
        remotes = {
            remote: number
            for number, remote in enumerate(
                dict.fromkeys(remote for block in self._blocks for remote in block.remotes)
            )
        }
        return {
            "threadblocks": [
                {
                    "id": number,
                    "ops": block.operations,
                    "channels": [
                        {
                            "channel_type": kind,
                            "channel_ids": [self._channels[used] for used in block.channels],
                        }
                    ],
                    "remote_buffer_refs": [
                        {
                            "access_channel_type": kind,
                            "remote_buffer_ids": [remotes[used] for used in block.remotes],
                        }
                    ],
                }
                for number, block in enumerate(self._blocks)
            ],
            "channels": [
                {"channel_type": kind, "connected_to": [peer for _, _, peer in self._channels]}
            ],
            "remote_buffers": [
                {"rank": peer, "type": buffer, "access_channel_types": [kind]}
                for peer, buffer in remotes
            ],
            "semaphores": [{"init_value": 0} for _ in range(self._semaphores)],
        }
