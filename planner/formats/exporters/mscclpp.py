"""Writes an all-reduce as an execution plan of MSCCL++, whose executor runs it as one kernel.

Problem: a plan has, per GPU, concurrent thread blocks with lists of operations: put chunks into
another GPU's buffer and signal it, wait for a signal, add buffers. Only signals order two GPUs. No
possible order may change the sums. Method: each lane of a rank is a chain of thread blocks with
channels of its own per link and peer; puts go by DMA or RDMA (channels of kind ``port``). Details
and proof: docs/exports.md, "Why exported programs compute the right sums". Guarantee: data and sums
are the program's in any order, without deadlock if all blocks run at once. NICs are not assigned:
the executor takes the one of the GPU's number, so a BCube's NICs per level become other wires.
Complexity: linear in the messages times their chunks. Source: Microsoft MSCCL++ 0.9.0, parser
(``execution_plan.cc``) and kernel (``execution_kernel.hpp``).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from planner.families.collectives.program import Message, Program
from planner.formats.exporters.msccl import check_all_reduce, check_at_most, check_direct, name_of
from planner.model.errors import InvalidInputError

ItemT = TypeVar("ItemT")

MAX_BLOCKS = 64
"""Thread blocks of a rank: all run at once, and a GPU has not many more multiprocessors."""

MAX_BYTES = 2**32 - 1  # the executor keeps offsets in 32 bits

_MAX_OPERATIONS = 64  # operations of a thread block
_MAX_CHANNELS = 16  # channels of a thread block, and buffers of other ranks that it puts into
_MAX_AT_ONCE = 8  # channels of an operation, and buffers that are added to another one

_KIND = "port"
_WAITING = ("wait", "sem_acquire")
_SENDING = ("signal", "pws", "pwsf")
"""Operations by one thread per channel or semaphore; all threads add (``re``)."""

_Channel = tuple[int, int, int]  # lane, link and peer
_Places = Mapping[Message, int]  # where added messages arrive in their receivers' scratch buffers


class _Chunks(NamedTuple):
    """Chunks of a buffer: ``i`` is the gradient (input and output), ``s`` the scratch buffer.

    `peer` is the other rank whose buffer is written; None for this rank.
    """

    buffer: str
    first: int
    size: int
    peer: int | None = None


class _Operation(NamedTuple):
    """An operation that is not yet placed in a thread block."""

    name: str
    channels: tuple[_Channel, ...] = ()
    sources: tuple[_Chunks, ...] = ()
    targets: tuple[_Chunks, ...] = ()

    def needs(self, before: "_Operation") -> bool:
        """Whether this operation has to wait until all threads have done an earlier one."""
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
        by_all = "re" in (before.name, self.name)
        return by_all or len(self.channels) != 1 or len(before.channels) > 1


def write_mscclpp(program: Program) -> str:
    """Return an all-reduce as a plan of MSCCL++, in place, with one GPU per rank.

    The executor takes it for buffers of a multiple of 16 bytes times the chunks.
    InvalidInputError unless the program is an all-reduce among at least two ranks with chunks of
    one size that the format can express, and is small enough for the executor.
    """
    check_all_reduce(program, "MSCCL++")
    if program.ranks == 1:
        raise InvalidInputError("program", "expected at least 2 ranks, got 1: nothing is sent")
    places, sizes = _places(program)
    gpus = []
    for rank in range(program.ranks):
        buffers = {
            "input_chunks": program.chunks,
            "output_chunks": program.chunks,
            "scratch_chunks": sizes[rank],
        }
        gpus.append({"id": rank, **buffers, **_gpu(program, rank, places)})
    document = {
        "name": name_of(program),
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "gpus": gpus,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": MAX_BYTES,
    }
    return json.dumps(document, indent=1) + "\n"


def _places(program: Program) -> tuple[_Places, Mapping[int, int]]:
    """Return the places of added messages in scratch buffers, and the ranks' scratch sizes."""
    places = {}
    sizes = dict.fromkeys(range(program.ranks), 0)
    for message in program.messages():
        if message.adds:
            places[message] = sizes[message.receiver]
            sizes[message.receiver] += message.stop - message.first
    return places, sizes


def _gpu(program: Program, rank: int, places: _Places) -> dict[str, Any]:
    """Return the document of one rank."""
    sent, received = list(program.sends(rank)), list(program.receives(rank))
    check_direct(sent)
    writer = _Rank(sorted({*map(_to, sent), *map(_from, received)}))

    def moment(message: Message) -> tuple[int, int, int, int]:
        # The same key at both ends; ranks send to their successors first.
        turn = (message.receiver - message.sender) % program.ranks
        return message.step, turn, message.link, message.first

    for lane in range(program.lanes):
        leaving, arriving = (
            sorted((message for message in messages if message.lane == lane), key=moment)
            for messages in (sent, received)
        )
        writer.chain(_operations(leaving, arriving, places))
    check_at_most(len(writer.blocks), MAX_BLOCKS, "thread blocks of a rank")
    return writer.written()


def _to(message: Message) -> _Channel:
    return message.lane, message.link, message.receiver


def _from(message: Message) -> _Channel:
    return message.lane, message.link, message.sender


def _operations(
    sent: Sequence[Message], received: Sequence[Message], places: _Places
) -> Iterator[_Operation]:
    """Yield the operations of a rank in a lane."""
    for name, channels in (("signal", map(_from, received)), ("wait", map(_to, sent))):
        for together in _batches(dict.fromkeys(channels), lambda channel: channel):
            yield _Operation(name, tuple(together))
    final = {_to(message): message for message in sent}
    gone: set[int] = set()
    for step in sorted({message.step for message in (*sent, *received)}):
        leaving = [message for message in sent if message.step == step]
        arriving = [message for message in received if message.step == step]
        for puts in _batches(leaving, _to):
            ends = any(final[_to(message)] == message for message in puts)
            name = "pwsf" if ends else "pws"
            sources = tuple(_own(message) for message in puts)
            targets = tuple(_target(message, places) for message in puts)
            yield _Operation(name, tuple(map(_to, puts)), sources, targets)
        for waited in _batches(arriving, _from):
            yield _Operation("wait", tuple(map(_from, waited)))
        for message in leaving:
            gone.update(range(message.first, message.stop))
        for message in arriving:
            if message.adds and not gone.isdisjoint(range(message.first, message.stop)):
                raise InvalidInputError(
                    "program",
                    f"step {step}: rank {message.receiver} adds to chunks of "
                    f"{message.first}…{message.stop - 1} that it has sent: these may still be read",
                )
        yield from _adding([message for message in arriving if message.adds], places)


def _own(message: Message) -> _Chunks:
    """Return a message's chunks of this rank's gradient."""
    return _Chunks("i", message.first, message.stop - message.first)


def _target(message: Message, places: _Places) -> _Chunks:
    """Return the chunks of its receiver that a message is put into."""
    if message in places:
        return _Chunks("s", places[message], message.stop - message.first, message.receiver)
    return _own(message)._replace(peer=message.receiver)


def _adding(messages: Iterable[Message], places: _Places) -> Iterator[_Operation]:
    """Yield the operations that add the arrived messages of one step."""
    ranges: dict[_Chunks, list[Message]] = {}
    for message in messages:
        ranges.setdefault(_own(message), []).append(message)
    for own, several in ranges.items():
        for first in range(0, len(several), _MAX_AT_ONCE):
            added = (
                _Chunks("s", places[message], own.size)
                for message in several[first : first + _MAX_AT_ONCE]
            )
            yield _Operation("re", (), (own, *added), (own,))


def _batches(items: Iterable[ItemT], channel: Callable[[ItemT], _Channel]) -> Iterator[list[ItemT]]:
    """Yield items in order, in batches of at most `_MAX_AT_ONCE` items on different channels."""
    batch: list[ItemT] = []
    for item in items:
        if len(batch) == _MAX_AT_ONCE or channel(item) in map(channel, batch):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


# ---
# Thread blocks: operations with what keeps them in order.
#
# Problem: operations have to take effect in order, but threads of a block wait for each other only
# at ``nop``, and blocks only at semaphores; a block has room for few operations, channels and
# buffers. Method: waits, signals and puts are done by the first threads, one per channel; all
# threads add. A ``nop`` precedes an operation that needs what other threads have done since the
# last one, so none stands between a wait and a put over the same single channel: one thread does
# both. What does not fit opens the next block, behind a semaphore. Source: own.


class _Block:
    """A thread block that is being filled."""

    def __init__(self) -> None:
        self.operations: list[dict[str, Any]] = []
        self.since: list[_Operation] = []  # the last nop
        self.channels: dict[_Channel, int] = {}
        self.remotes: dict[tuple[int, str], int] = {}

    def has_room(self, operation: _Operation) -> bool:
        """Whether the operation fits, with a ``nop`` before and a semaphore behind it."""
        channels = self.channels.keys() | set(operation.channels)
        remotes = self.remotes.keys() | set(_remotes(operation))
        return (
            len(self.operations) + 4 <= _MAX_OPERATIONS
            and len(channels) <= _MAX_CHANNELS
            and len(remotes) <= _MAX_CHANNELS
        )

    def add(self, operation: _Operation, semaphore: int = -1) -> None:
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
            written["channel_type"] = _KIND
        elif operation.sources:
            written["reduce_op"] = "sum"
        if semaphore >= 0:
            written["semaphore_ids"] = [semaphore]
        self.operations.append(written)

    def _chunks(self, chunks: _Chunks) -> dict[str, Any]:
        place: dict[str, Any] = {"type": chunks.buffer}
        if chunks.peer is not None:
            place = {"buffer_id": self.remotes[chunks.peer, chunks.buffer]}
        return {**place, "index": chunks.first, "size": chunks.size}


def _remotes(operation: _Operation) -> Iterable[tuple[int, str]]:
    return [(chunks.peer, chunks.buffer) for chunks in operation.targets if chunks.peer is not None]


class _Rank:
    """The thread blocks of a rank.

    Channels of two ranks are matched in the order in which both list them.
    """

    def __init__(self, channels: Iterable[_Channel]) -> None:
        self._channels: Mapping[_Channel, int] = {
            channel: number for number, channel in enumerate(channels)
        }
        self.blocks: list[_Block] = []
        self._semaphores = 0

    def chain(self, operations: Iterable[_Operation]) -> None:
        """Add operations that follow each other, in as many blocks as they need."""
        block: _Block | None = None
        for operation in operations:
            if block is None or not block.has_room(operation):
                following = _Block()
                if block is not None:
                    block.add(_Operation("sem_release"), self._semaphores)
                    following.add(_Operation("sem_acquire"), self._semaphores)
                    self._semaphores += 1
                self.blocks.append(following)
                block = following
            block.add(operation)

    def written(self) -> dict[str, Any]:
        """Return the thread blocks with their channels, buffers and semaphores, as plain values."""
        remotes = {
            remote: number
            for number, remote in enumerate(
                dict.fromkeys(remote for block in self.blocks for remote in block.remotes)
            )
        }
        return {
            "threadblocks": [
                {
                    "id": number,
                    "ops": block.operations,
                    "channels": [
                        {
                            "channel_type": _KIND,
                            "channel_ids": [self._channels[used] for used in block.channels],
                        }
                    ],
                    "remote_buffer_refs": [
                        {
                            "access_channel_type": _KIND,
                            "remote_buffer_ids": [remotes[used] for used in block.remotes],
                        }
                    ],
                }
                for number, block in enumerate(self.blocks)
            ],
            "channels": [
                {"channel_type": _KIND, "connected_to": [peer for _, _, peer in self._channels]}
            ],
            "remote_buffers": [
                {"rank": peer, "type": buffer, "access_channel_types": [_KIND]}
                for peer, buffer in remotes
            ],
            "semaphores": [{"init_value": 0} for _ in range(self._semaphores)],
        }
