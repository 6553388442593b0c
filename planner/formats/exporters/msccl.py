"""Writes an all-reduce as an algorithm of MSCCL, the programmable runtime on top of NCCL.

Problem: MSCCL runs an XML program on each GPU: concurrent thread blocks, each a list of steps that
send to one peer or receive from one over one channel. A step may wait for one step of another
block; a ``nop`` before it waits for one more. Every order must move the same data with the same
sums.
Method: per link and peer one receiving and one sending block, messages in the program's order.
Details and proof: docs/exports.md, "Why exported programs compute the right sums".
Guarantee: links carry the program's messages in its order with its sums; no order deadlocks.
Complexity: linear in the messages times their chunks; BML has 2k(n-1) thread blocks per server and
k(n-1)·(3k + 1 + (n-1)·k(k-1)/2) steps with ``nop``. Source: Cowan et al., "MSCCLang", ASPLOS 2023;
attributes and limits: parser of msccl-executor-nccl.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from xml.etree import ElementTree as ET

from planner.families.collectives.program import OWN, Message, Program
from planner.model.errors import InvalidInputError
from planner.model.validation import shown

MAX_GPUS = 1024  # ranks for which the runtime's parser has room
MAX_PEERS = 32  # sending, and receiving, thread blocks on one channel
MAX_CHUNKS = 71  # chunks of one step
MAX_ALL_CHUNKS = 2**15 - 1  # chunks of a rank: the runtime keeps 16 bits
MAX_STEPS = 64  # steps of one thread block
MAX_ELEMENTS = 4095  # XML elements that a rank reads
MAX_NAME = 255  # characters of a name: the parser writes without checking


def write_msccl(program: Program) -> str:
    """Return an all-reduce in MSCCL's XML, with one GPU per rank, for buffers of any size.

    The runtime uses it for buffers whose number of elements is a multiple of the chunks.

    Parameters
    ----------
    program : Program
        An all-reduce with chunks of one size.

    Raises
    ------
    InvalidInputError
        If the format cannot express the program, or it is too large for the runtime.
    """
    check_all_reduce(program, "MSCCL")
    check_at_most(program.ranks, MAX_GPUS, "ranks")
    check_at_most(program.chunks, MAX_ALL_CHUNKS, "chunks")
    sizes = {"i_chunks": program.chunks, "o_chunks": program.chunks, "s_chunks": 0}
    lines, apart = [], True
    # Ranks are written one by one, so only one rank's elements are in memory. The runtime's parser
    # knows no XML declaration.
    for rank in range(program.ranks):
        gpu = _element("gpu", id=rank, **sizes)
        apart &= _add_thread_blocks(gpu, program, rank)
        elements = program.ranks + sum(1 for _ in gpu.iter())
        check_at_most(elements, MAX_ELEMENTS, "elements for a rank")
        ET.indent(gpu, level=1)
        lines.append("  " + ET.tostring(gpu, encoding="unicode"))
    algo = _element(
        "algo",
        name=name_of(program),
        proto="Simple",
        nchannels=program.links,
        nchunksperloop=program.chunks,
        ngpus=program.ranks,
        coll="allreduce",
        inplace=1,
        outofplace=int(apart),
        minBytes=0,
        maxBytes=0,  # no limit
    )
    opening = ET.tostring(algo, encoding="unicode", short_empty_elements=False)
    return "\n".join([opening.removesuffix("</algo>"), *lines, "</algo>", ""])


def _add_thread_blocks(gpu: ET.Element, program: Program, rank: int) -> bool:
    """Add the thread blocks of one rank; return whether input and output may be two buffers.

    They may not be if only some chunks of a message were received before: a step reads one buffer.
    """
    apart = True
    sent, received = list(program.sends(rank)), list(program.receives(rank))
    targets, sources = (
        sorted(ends, key=lambda end: (end[0], (end[1] - rank) % program.ranks))
        for ends in (
            {(message.link, message.receiver) for message in sent},
            {(message.link, message.sender) for message in received},
        )
    )
    most = max(
        peers for ends in (sources, targets) for peers in Counter(link for link, _ in ends).values()
    )
    check_at_most(most, MAX_PEERS, "ranks to talk to over a link")
    check_direct(sent)
    # Only receiving blocks are waited for; they come first, as the runtime keeps 7 bits for them.
    for link, peer in sources:
        gpu.append(_element("tb", id=len(gpu), send=-1, recv=peer, chan=link))
    for link, peer in targets:
        gpu.append(_element("tb", id=len(gpu), send=peer, recv=-1, chan=link))
    receiving = {end: block for block, end in enumerate(sources)}
    sending = {end: block for block, end in enumerate(targets, len(sources))}

    def moment(message: Message) -> tuple[int, bool, int, int]:
        turn = (message.receiver - message.sender) % program.ranks
        return message.step, message.sender != rank, turn, message.first

    wrote: dict[int, tuple[int, int]] = {}  # thread block and step that last wrote a chunk
    for message in sorted([*sent, *received], key=moment):
        for chunks in _at_once(message):
            # Of several steps of one thread block only the last is waited for.
            awaited = dict(sorted({wrote[chunk] for chunk in chunks if chunk in wrote}))
            source = "o" if awaited else "i"
            reads = message.sender == rank or message.adds
            apart &= not (reads and awaited) or all(chunk in wrote for chunk in chunks)
            if message.sender == rank:
                block = sending[message.link, message.receiver]
                _add_step(gpu, block, "s", source, chunks, awaited)
                continue
            block = receiving[message.link, message.sender]
            if message.adds:
                step = _add_step(gpu, block, "rrc", source, chunks, awaited)
            else:
                step = _add_step(gpu, block, "r", "o", chunks, {})
            wrote.update(dict.fromkeys(chunks, (block, step)))
    return apart


def _at_once(message: Message) -> Iterator[range]:
    """Yield the chunks of a message, at most `MAX_CHUNKS` at once."""
    for first in range(message.first, message.stop, MAX_CHUNKS):
        yield range(first, min(message.stop, first + MAX_CHUNKS))


def _add_step(
    gpu: ET.Element,
    block: int,
    kind: str,
    source: str,
    chunks: range,
    awaited: Mapping[int, int],
) -> int:
    """Add a step that waits for one step of each given block; return its number."""
    for waited, step in awaited.items():
        gpu[waited][step].set("hasdep", "1")
    tb = gpu[block]
    check_at_most(len(tb) + max(len(awaited), 1), MAX_STEPS, "steps of a thread block")
    *before, last = awaited.items() or [(-1, -1)]
    for wait in before:
        tb.append(_step(len(tb), "nop", "i", range(-1, -1), wait))
    tb.append(_step(len(tb), kind, source, chunks, last))
    return len(tb) - 1


def _step(number: int, kind: str, source: str, chunks: range, wait: tuple[int, int]) -> ET.Element:
    return _element(
        "step",
        s=number,
        type=kind,
        srcbuf=source,
        srcoff=chunks.start,
        dstbuf="o",
        dstoff=chunks.start,
        cnt=len(chunks),
        depid=wait[0],
        deps=wait[1],
        hasdep=0,
    )


def _element(tag: str, **attributes: str | int) -> ET.Element:
    return ET.Element(tag, {key: str(value) for key, value in attributes.items()})


def check_at_most(amount: int, limit: int, what: str) -> None:
    """Refuse programs that the runtime would not load."""
    if amount > limit:
        raise InvalidInputError("program", f"expected at most {limit} {what}, got {shown(amount)}")


def check_all_reduce(program: Program, tool: str) -> None:
    """Refuse programs that are no all-reduce with chunks of one size."""
    if program.kind != "all_reduce":
        raise InvalidInputError("program.kind", f"expected an all_reduce, got {program.kind}")
    if not program.even:
        raise InvalidInputError("program", f"chunks of {tool} are all of one size")


def check_direct(messages: Iterable[Message]) -> None:
    """Refuse messages that are passed on through other ranks."""
    if any((message.source, message.target) != (OWN, OWN) for message in messages):
        raise InvalidInputError("program", "expected no passing on through other ranks")


def name_of(program: Program) -> str:
    """Return the program's name without characters on which the runtimes' parsers may fail."""
    return re.sub(r"[^A-Za-z0-9]+", "-", program.name).strip("-")[:MAX_NAME]
