"""Writes an all-reduce as an execution plan of MSCCL++, whose executor runs it as one kernel.

Problem: a plan has, per GPU, concurrent thread blocks with lists of operations: put chunks into
another GPU's buffer and signal it, wait for a signal, add buffers. Only signals order two GPUs. No
possible order may change the sums. Method: each lane of a rank is a chain of thread blocks
(`planner.formats.exporters.mscclpp_blocks`) with channels of its own per link and peer. Details and
proof: docs/exports.md, "Why exported programs compute the right sums". Guarantee: data and sums are
the program's in any order, without deadlock if all blocks run at once. NICs are not assigned: the
executor takes the one of the GPU's number, so a BCube's NICs per level become other wires.
Complexity: linear in the messages times their chunks. Source: Microsoft MSCCL++ 0.9.0, parser
(``execution_plan.cc``) and kernel (``execution_kernel.hpp``).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, TypeVar, get_args

from planner.families.collectives.program import OWN, Message, Program
from planner.formats.exporters.msccl import check_all_reduce, check_name
from planner.formats.exporters.mscclpp_blocks import MAX_AT_ONCE, Channel, Chunks, Operation, Rank
from planner.model.errors import InvalidInputError
from planner.model.validation import shown

ChannelKind = Literal["port", "memory"]
"""Transfer by DMA or RDMA (port), or by thread stores into a peer's memory (memory)."""

ItemT = TypeVar("ItemT")

MAX_BLOCKS = 64
"""Thread blocks of a rank: all run at once, and a GPU has not many more multiprocessors."""

MAX_BYTES = 2**32 - 1  # the executor keeps offsets in 32 bits

_Places = Mapping[Message, int]  # where messages arrive in their receivers' scratch buffers


def write_mscclpp(
    program: Program,
    *,
    name: str,
    channel: ChannelKind = "port",
) -> str:
    """Return an all-reduce as a plan of MSCCL++, in place, with one GPU per rank.

    The executor takes it for buffers of a multiple of 16 bytes times the chunks.

    Parameters
    ----------
    program : Program
        An all-reduce among at least two ranks, with chunks of one size.
    name : str
        Name of the plan: printable ASCII without quotes, ``&``, ``<`` and ``>``.
    channel : {"port", "memory"}
        How ranks reach each other: ``memory`` only within one machine or one domain of NVLink.

    Raises
    ------
    InvalidInputError
        If the format cannot express the program, or it is too large for the executor.
    """
    check_all_reduce(program, "MSCCL++")
    if program.ranks == 1:
        raise InvalidInputError("program", "expected at least 2 ranks, got 1: nothing is sent")
    check_name(name)
    if channel not in get_args(ChannelKind):
        raise InvalidInputError("channel", f"expected 'port' or 'memory', got {shown(channel)}")
    places, sizes = _places(program)
    gpus = []
    for rank in range(program.ranks):
        buffers = {
            "input_chunks": program.chunks,
            "output_chunks": program.chunks,
            "scratch_chunks": sizes[rank],
        }
        gpus.append({"id": rank, **buffers, **_gpu(program, rank, places, channel)})
    document = {
        "name": name,
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
    """Return the places of messages in scratch buffers, and the ranks' scratch sizes."""
    places = {}
    sizes = dict.fromkeys(range(program.ranks), 0)
    for message in program.messages():
        if message.adds or message.target != OWN:
            if message.target != OWN and message.adds:
                raise InvalidInputError("program", "expected no sums of what is passed on")
            places[message] = sizes[message.receiver]
            sizes[message.receiver] += message.stop - message.first
    return places, sizes


def _gpu(program: Program, rank: int, places: _Places, kind: ChannelKind) -> dict[str, Any]:
    """Return the document of one rank."""
    sent, received = list(program.sends(rank)), list(program.receives(rank))
    channels = sorted({*map(_to, sent), *map(_from, received)})
    writer = Rank(channels, kind)

    def moment(message: Message) -> tuple[int, int, int, int, int]:
        # The same key at both ends; ranks send to their successors first.
        turn = (message.receiver - message.sender) % program.ranks
        return message.step, turn, message.link, message.first, message.target

    for lane in range(program.lanes):
        leaving, arriving = (
            sorted((message for message in messages if message.lane == lane), key=moment)
            for messages in (sent, received)
        )
        writer.chain(_operations(leaving, arriving, places, kind))
    if writer.blocks > MAX_BLOCKS:
        raise InvalidInputError(
            "program", f"expected at most {MAX_BLOCKS} thread blocks of a rank, got {writer.blocks}"
        )
    return writer.written()


def _to(message: Message) -> Channel:
    return message.lane, message.link, message.receiver


def _from(message: Message) -> Channel:
    return message.lane, message.link, message.sender


def _operations(
    sent: Sequence[Message], received: Sequence[Message], places: _Places, kind: ChannelKind
) -> Iterator[Operation]:
    """Yield the operations of a rank in a lane."""
    for name, channels in (("signal", map(_from, received)), ("wait", map(_to, sent))):
        for together in _batches(dict.fromkeys(channels), lambda channel: channel):
            yield Operation(name, tuple(together))
    final = {_to(message): message for message in sent}
    passing: dict[tuple[int, int], int] = {}  # place of relayed chunks in the scratch buffer
    gone: set[int] = set()
    for step in sorted({message.step for message in (*sent, *received)}):
        leaving = [message for message in sent if message.step == step]
        arriving = [message for message in received if message.step == step]
        for puts in _batches(leaving, _to):
            yield from _putting(puts, places, passing, kind, final)
        for waited in _batches(arriving, _from):
            yield Operation("wait", tuple(map(_from, waited)))
        for message in leaving:
            gone.update(_chunks(message) if message.source == OWN else ())
        for message in arriving:
            if message.adds and not gone.isdisjoint(_chunks(message)):
                raise InvalidInputError(
                    "program",
                    f"step {step}: rank {message.receiver} adds to chunks of "
                    f"{message.first}…{message.stop - 1} that it has sent: these may still be read",
                )
            if message.target != OWN:
                places_of = range(places[message], places[message] + len(_chunks(message)))
                keys = ((message.target, chunk) for chunk in _chunks(message))
                passing.update(zip(keys, places_of, strict=True))
        yield from _adding([message for message in arriving if message.adds], places)


def _putting(
    messages: Sequence[Message],
    places: _Places,
    passing: Mapping[tuple[int, int], int],
    kind: ChannelKind,
    final: Mapping[Channel, Message],
) -> Iterator[Operation]:
    """Yield the operations that put messages, over one channel each, and signal behind them."""
    sources = [_source(message, passing) for message in messages]
    targets = [
        Chunks("s", places[message], len(_chunks(message)), message.receiver)
        if message in places
        else Chunks("i", message.first, len(_chunks(message)), message.receiver)
        for message in messages
    ]
    channels = [_to(message) for message in messages]
    if kind == "port":
        ends = any(final[_to(message)] == message for message in messages)
        name = "pwsf" if ends else "pws"
        yield Operation(name, tuple(channels), tuple(sources), tuple(targets))
        return
    rows = zip(channels, sources, targets, strict=True)
    # One operation reads one buffer.
    for _, group in groupby(sorted(rows, key=lambda row: row[1].buffer), lambda row: row[1].buffer):
        yield Operation("put", *zip(*group, strict=True))
    yield Operation("signal", tuple(channels))


def _source(message: Message, passing: Mapping[tuple[int, int], int]) -> Chunks:
    """Return the chunks that a message is read from."""
    chunks = _chunks(message)
    if message.source == OWN:
        return Chunks("i", message.first, len(chunks))
    held = [passing.get((message.source, chunk)) for chunk in chunks]
    if None in held or held != list(range(held[0] or 0, (held[0] or 0) + len(held))):
        raise InvalidInputError(
            "program", "expected what is passed on in ranges in which it has arrived"
        )
    return Chunks("s", held[0] or 0, len(chunks))


def _adding(messages: Iterable[Message], places: _Places) -> Iterator[Operation]:
    """Yield the operations that add the arrived messages of one step."""
    ranges: dict[range, list[Message]] = {}
    for message in messages:
        ranges.setdefault(_chunks(message), []).append(message)
    for chunks, several in ranges.items():
        own = Chunks("i", chunks.start, len(chunks))
        for first in range(0, len(several), MAX_AT_ONCE):
            added = (
                Chunks("s", places[message], len(chunks))
                for message in several[first : first + MAX_AT_ONCE]
            )
            yield Operation("re", (), (own, *added), (own,))


def _chunks(message: Message) -> range:
    return range(message.first, message.stop)


def _batches(items: Iterable[ItemT], channel: Callable[[ItemT], Channel]) -> Iterator[list[ItemT]]:
    """Yield items in order, in batches of at most `MAX_AT_ONCE` items on different channels."""
    batch: list[ItemT] = []
    for item in items:
        if len(batch) == MAX_AT_ONCE or channel(item) in map(channel, batch):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
