"""Writes an all-reduce as an algorithm of MSCCL, the programmable runtime on top of NCCL.

Problem. MSCCL runs an XML program on each GPU: thread blocks that work at once, each a list of
steps that send to one peer or receive from one peer over one channel. A step may wait for one step
of another thread block; a ``nop`` before it waits for one more. Write a collective program so that
every order in which thread blocks may run moves the same data and adds it up in the same way.

Method. Each rank has, for each link and each rank it talks to over that, one thread block that
receives and one that sends, both on the channel of the link; in them the messages of that link
stand in the order of the program's steps. The first half adds what is received to the input ("i")
the first time and to the output ("o") from then on (``rrc``), the second stores it (``r``); so it
works in place and out of place. A step waits for the steps that last wrote what it reads. What a
rank receives in one step is added one after the other, from the nearest sender in rotated order to
the farthest: no addition is lost, and sums of floats are the same in every run. Messages of more
chunks than the runtime takes at once are several.

Guarantee. Every link carries the messages of the program in its order, with the same sums. No
order of the thread blocks ends in a deadlock, even if a send blocks until its receive has begun: a
step only waits for earlier steps of the program, or for nearer senders in its own. No wait is
needed before a chunk of the output is overwritten in the second half: the sum that arrives has in
it what the rank sent, so that was read before.

Complexity. Linear in the messages times their chunks. BML's program of a server has 2k(n-1) thread
blocks and, with its ``nop`` steps, k(n-1)·(3k + 1 + (n-1)·k(k-1)/2) steps.

Source. Cowan et al., "MSCCLang: Microsoft Collective Communication Language", ASPLOS 2023;
attributes and limits are those of the parser of the runtime msccl-executor-nccl.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args
from xml.etree import ElementTree as ET

from planner.bml.program import program_of
from planner.bml.schedule import Schedule
from planner.collectives.parts import in_parts
from planner.collectives.program import OWN, Message, Program
from planner.errors import InvalidInputError
from planner.validation import integer, shown

__all__ = ["Protocol", "check_name", "write_msccl"]

Protocol = Literal["Simple", "LL", "LL128"]
"""NCCL's ways to move data: most bandwidth, least latency, between the two on NVLink."""

MAX_GPUS = 1024
"""Ranks the runtime's parser has room for."""

MAX_PEERS = 32
"""Thread blocks that send, and that receive, on one channel."""

MAX_CHUNKS = 71
"""Chunks of one step."""

MAX_ALL_CHUNKS = 2**15 - 1
"""Chunks of a rank: the runtime keeps 16 bits."""

MAX_STEPS = 64
"""Steps of one thread block."""

MAX_ELEMENTS = 4095
"""Elements of XML that a rank reads."""

MAX_NAME = 255
"""Characters of a name: the parser does not look before it writes."""


def write_msccl(
    program: Program | Schedule,
    *,
    name: str,
    protocol: Protocol = "Simple",
    min_bytes: int = 0,
    max_bytes: int = 0,
) -> str:
    """Return an all-reduce in MSCCL's XML, for one GPU a rank.

    The runtime uses it for buffers whose number of elements is a multiple of the chunks.

    Parameters
    ----------
    program : Program or Schedule
        An all-reduce whose chunks are all of one size; of BML's schedules those without failures.
    name : str
        Name of the algorithm: printable ASCII without quotes, ``&``, ``<`` and ``>``.
    protocol : str
        "Simple", "LL" or "LL128".
    min_bytes, max_bytes : int
        Sizes of the buffers to use it for; a `max_bytes` of 0 sets no limit.

    Raises
    ------
    InvalidInputError
        If the program cannot be said in this format, or is too large for the runtime.
    """
    if not isinstance(program, Program):
        _check_schedule(program)
        program = in_parts(program_of(program), program.rounds)
    _check_program(program)
    check_name(name)
    if protocol not in get_args(Protocol):
        raise InvalidInputError(
            "protocol", f"expected one of 'Simple', 'LL', 'LL128', got {shown(protocol)}"
        )
    integer(min_bytes, "min_bytes")
    if integer(max_bytes, "max_bytes"):
        integer(max_bytes, "max_bytes", minimum=min_bytes)
    algo = _element(
        "algo",
        name=name,
        proto=protocol,
        nchannels=program.links,
        nchunksperloop=program.chunks,
        ngpus=program.ranks,
        coll="allreduce",
        inplace=1,
        outofplace=1,
        minBytes=min_bytes,
        maxBytes=max_bytes,
    )
    # Each rank's elements are gone before the next rank's are made. The runtime's parser knows no
    # XML declaration.
    opening = ET.tostring(algo, encoding="unicode", short_empty_elements=False)
    lines = [opening.removesuffix("</algo>")]
    sizes = {"i_chunks": program.chunks, "o_chunks": program.chunks, "s_chunks": 0}
    for rank in range(program.ranks):
        gpu = _element("gpu", id=rank, **sizes)
        _add_thread_blocks(gpu, program, rank)
        elements = program.ranks + sum(1 for _ in gpu.iter())
        if elements > MAX_ELEMENTS:
            raise InvalidInputError(
                "program", f"expected at most {MAX_ELEMENTS} elements for a rank, got {elements}"
            )
        ET.indent(gpu, level=1)
        lines.append("  " + ET.tostring(gpu, encoding="unicode"))
    return "\n".join([*lines, "</algo>", ""])


def _add_thread_blocks(gpu: ET.Element, program: Program, rank: int) -> None:
    """Add what one rank does."""
    sent, received = list(program.sends(rank)), list(program.receives(rank))
    targets, sources = (
        sorted(ends, key=lambda end: (end[0], (end[1] - rank) % program.ranks))
        for ends in (
            {(message.link, message.receiver) for message in sent},
            {(message.link, message.sender) for message in received},
        )
    )
    most = max((*_by_link(sources).values(), *_by_link(targets).values()), default=0)
    if most > MAX_PEERS:
        raise InvalidInputError(
            "program", f"expected at most {MAX_PEERS} ranks to talk to over a link, got {most}"
        )
    if any((message.source, message.target) != (OWN, OWN) for message in sent):
        raise InvalidInputError("program", "expected no passing on through other ranks")
    # Only receiving blocks are waited for; they come first, as the runtime keeps 7 bits for that.
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
            # Of steps in one thread block, the last is waited for.
            awaited = dict(sorted({wrote[chunk] for chunk in chunks if chunk in wrote}))
            source = "o" if awaited else "i"
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


def _by_link(ends: Sequence[tuple[int, int]]) -> Counter[int]:
    return Counter(link for link, _ in ends)


def _at_once(message: Message) -> Iterator[range]:
    """Yield the chunks of a message, as many at once as the runtime takes."""
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
    """Add a step that waits for one of each of other thread blocks; return its number."""
    for waited, step in awaited.items():
        gpu[waited][step].set("hasdep", "1")
    tb = gpu[block]
    if len(tb) + max(len(awaited), 1) > MAX_STEPS:
        raise InvalidInputError(
            "program", f"expected at most {MAX_STEPS} steps of a thread block, got more"
        )
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


def _check_schedule(schedule: Schedule) -> None:
    """Refuse what the format has no words for, and what the runtime would not load."""
    if not isinstance(schedule, Schedule):
        raise InvalidInputError(
            "schedule",
            f"expected the schedule of Algorithm 1, got a {type(schedule).__name__}: "
            "chunks of MSCCL are all of one size",
        )
    if schedule.changed:
        raise InvalidInputError(
            "schedule",
            "expected a schedule without failures: MSCCL has no ranks that take no part, and no "
            "way to keep a NIC from being used",
        )


def _check_program(program: Program) -> None:
    """Refuse what the format has no words for, and what the runtime would not load."""
    if program.kind != "all_reduce":
        raise InvalidInputError("program.kind", f"expected an all_reduce, got {program.kind}")
    for amount, limit, what in (
        (program.ranks, MAX_GPUS, "ranks"),
        (program.chunks, MAX_ALL_CHUNKS, "chunks"),
    ):
        if amount > limit:
            raise InvalidInputError(
                "program", f"expected at most {limit} {what}, got {shown(amount)}"
            )
    if not program.even:
        raise InvalidInputError("program", "chunks of MSCCL are all of one size")


def check_name(name: str) -> None:
    """Refuse names that parsers of these runtimes may stumble over.

    Raises
    ------
    InvalidInputError
        If it is one.
    """
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= MAX_NAME
        or any(not " " <= character <= "~" or character in "\"'&<>" for character in name)
    ):
        raise InvalidInputError(
            "name",
            f"expected 1 to {MAX_NAME} printable ASCII characters without quotes, &, < and >, "
            f"got {shown(name)}",
        )
