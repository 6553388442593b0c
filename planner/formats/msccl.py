"""Writes the schedule of BML as an algorithm of MSCCL, the programmable runtime on top of NCCL.

Problem. MSCCL runs an XML program on each GPU: thread blocks that work at once, each a list of
steps that send to one peer or receive from one peer over one channel. A step may wait for one step
of another thread block; a ``nop`` before it waits for one more. Write the schedule so that every
order in which thread blocks may run moves the same data and adds it up in the same way.

Method. Server s is rank s, piece q of thread t is chunk ``t·N + q``. Each server has, for each
neighbour, one thread block that receives and one that sends, both on the channel of their level;
in them the transfers of that link stand in the order of the schedule. The aggregation adds what is
received to the input ("i") the first time and to the output ("o") from then on (``rrc``), the
broadcast stores it (``r``); so it works in place and out of place. A step waits for the steps that
last wrote what it reads. What a server receives in one step of one thread is added one after the
other, from the nearest sender in rotated order to the farthest: no addition is lost, and sums of
floats are the same in every run.

Guarantee. Every link carries the transfers of the schedule in its order, with the same sums. No
order of the thread blocks ends in a deadlock, even if a send blocks until its receive has begun: a
step only waits for earlier steps of the schedule, or for nearer senders in its own. No wait is
needed before a chunk of the output is overwritten in the broadcast: the sum that arrives has in it
what the server sent, so that was read before.

Complexity. O(k·N²) for the chunks; a server's program has 2k(n-1) thread blocks and, with its
``nop`` steps, k(n-1)·(3k + 1 + (n-1)·k(k-1)/2) steps.

Source. Cowan et al., "MSCCLang: Microsoft Collective Communication Language", ASPLOS 2023;
attributes and limits are those of the parser of the runtime msccl-executor-nccl.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args
from xml.etree import ElementTree as ET

from planner.bml.plan import Transfer
from planner.bml.schedule import Schedule
from planner.errors import InvalidInputError
from planner.topologies import BCube
from planner.validation import integer, shown

__all__ = ["Protocol", "write_msccl"]

Protocol = Literal["Simple", "LL", "LL128"]
"""NCCL's ways to move data: most bandwidth, least latency, between the two on NVLink."""

MAX_GPUS = 1024
"""Ranks the runtime's parser has room for."""

MAX_PEERS = 32
"""Thread blocks that send, and that receive, on one channel."""

MAX_CHUNKS = 71
"""Chunks of one step."""

MAX_NAME = 255
"""Characters of a name: the parser does not look before it writes."""


def write_msccl(
    schedule: Schedule,
    *,
    name: str,
    protocol: Protocol = "Simple",
    min_bytes: int = 0,
    max_bytes: int = 0,
) -> str:
    """Return an all-reduce in MSCCL's XML, for one GPU a server; rank s is server s.

    The runtime uses it for buffers whose number of elements is a multiple of ``k·N``.

    Parameters
    ----------
    schedule : Schedule
        Without failures, in one round.
    name : str
        Name of the algorithm: printable ASCII without quotes, ``&``, ``<`` and ``>``.
    protocol : str
        "Simple", "LL" or "LL128".
    min_bytes, max_bytes : int
        Sizes of the buffers to use it for; a `max_bytes` of 0 sets no limit.

    Raises
    ------
    InvalidInputError
        If the schedule cannot be said in this format, or is too large for the runtime.
    """
    _check_schedule(schedule)
    _check_name(name)
    if protocol not in get_args(Protocol):
        raise InvalidInputError(
            "protocol", f"expected one of 'Simple', 'LL', 'LL128', got {shown(protocol)}"
        )
    integer(min_bytes, "min_bytes")
    if integer(max_bytes, "max_bytes"):
        integer(max_bytes, "max_bytes", minimum=min_bytes)
    bcube = schedule.bcube
    servers, chunks = bcube.servers, schedule.threads * schedule.pieces
    algo = _element(
        "algo",
        name=name,
        proto=protocol,
        nchannels=bcube.k,
        nchunksperloop=chunks,
        ngpus=servers,
        coll="allreduce",
        inplace=1,
        outofplace=1,
        minBytes=min_bytes,
        maxBytes=max_bytes,
    )
    concerning: list[list[Transfer]] = [[] for _ in range(servers)]
    for server in range(servers):
        for transfer in schedule.transfers(server):
            concerning[server].append(transfer)
            concerning[transfer.peer].append(transfer)
    # Each server's elements are gone before the next server's are made. The runtime's parser knows
    # no XML declaration.
    opening = ET.tostring(algo, encoding="unicode", short_empty_elements=False)
    lines = [opening.removesuffix("</algo>")]
    for server, transfers in enumerate(concerning):
        gpu = _element("gpu", id=server, i_chunks=chunks, o_chunks=chunks, s_chunks=0)
        _add_thread_blocks(gpu, bcube, server, transfers)
        ET.indent(gpu, level=1)
        lines.append("  " + ET.tostring(gpu, encoding="unicode"))
    return "\n".join([*lines, "</algo>", ""])


def _add_thread_blocks(
    gpu: ET.Element, bcube: BCube, server: int, transfers: Iterable[Transfer]
) -> None:
    """Add the program of one server, given all that it sends and receives."""
    peers = [(level, peer) for level in range(bcube.k) for peer in bcube.neighbours(server, level)]
    # Only receiving blocks are waited for; they come first, as the runtime keeps 7 bits for that.
    for level, peer in peers:
        gpu.append(_element("tb", id=len(gpu), send=-1, recv=peer, chan=level))
    for level, peer in peers:
        gpu.append(_element("tb", id=len(gpu), send=peer, recv=-1, chan=level))
    number = {peer: block for block, (_, peer) in enumerate(peers)}

    def moment(transfer: Transfer) -> tuple[bool, int, bool, int]:
        turn = bcube.digit(transfer.peer, transfer.level) - bcube.digit(
            transfer.server, transfer.level
        )
        return (
            transfer.stage == "broadcast",
            transfer.step,
            transfer.server != server,
            turn % bcube.n,
        )

    wrote: dict[int, tuple[int, int]] = {}  # thread block and step that last wrote a chunk
    for transfer in sorted(transfers, key=moment):
        first = transfer.thread * bcube.servers + transfer.offset
        chunks = range(first, first + transfer.length)
        # Of steps in one thread block, the last is waited for.
        awaited = dict(sorted({wrote[chunk] for chunk in chunks if chunk in wrote}))
        source = "o" if awaited else "i"
        if transfer.server == server:
            block = len(peers) + number[transfer.peer]
            _add_step(gpu, block, "s", source, chunks, awaited)
            continue
        block = number[transfer.server]
        if transfer.stage == "aggregate":
            step = _add_step(gpu, block, "rrc", source, chunks, awaited)
        else:
            step = _add_step(gpu, block, "r", "o", chunks, {})
        wrote.update(dict.fromkeys(chunks, (block, step)))


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
    if schedule.rounds != 1:
        raise InvalidInputError(
            "schedule.rounds",
            f"expected 1, got {shown(schedule.rounds)}: the runtime cuts chunks itself",
        )
    n, k = schedule.bcube.n, schedule.bcube.k
    for amount, limit, what in (
        (n**k, MAX_GPUS, "servers"),
        (n - 1, MAX_PEERS, "neighbours of a server on one level"),
        (n ** (k - 1), MAX_CHUNKS, "chunks in one transfer, n^(k-1)"),
    ):
        if amount > limit:
            raise InvalidInputError(
                "schedule.bcube", f"expected at most {limit} {what}, got {shown(amount)}"
            )


def _check_name(name: str) -> None:
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
