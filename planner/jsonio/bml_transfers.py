"""Read BML answers again: the program of the transfers they list.

Method: the transfers of all servers form a collective program
(`planner.families.collectives.program`) for a gradient of this size. A chunk is a byte range that
no transfer cuts. A lane is a thread of one part of one layer. Layers follow each other, the last
one first; so do parts, one step apart. The program is replayed before it is returned: it sums up
every contribution exactly once.

Complexity: that of `planner.families.collectives.checker.replay`. Source: own.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import UNSET

from planner.families.collectives.checker import check
from planner.families.collectives.layout import GivenLayout, Layout
from planner.families.collectives.program import ListedProgram, Message
from planner.jsonio.bml import BmlAnswer
from planner.jsonio.types import or_none
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.topologies import BCube


def lists_all(answer: BmlAnswer) -> bool:
    """Return whether an answer lists the transfers of all servers, not only of one."""
    return answer.transfers is not UNSET and answer.schedule == "all"


def program_of(answer: BmlAnswer) -> tuple[ListedProgram, int]:
    """Return the program of the transfers of all servers, and its size (bytes).

    Raises InvalidInputError if a transfer names an unknown server, link, piece or step, or if the
    transfers do not sum up every contribution exactly once.
    """
    program, servers, edges = _program(answer)
    living = answer.servers - (0 if answer.failed is UNSET else answer.failed.servers)
    if edges[-1] and len(servers) != living:
        raise InvalidPlanError(
            "transfers", f"expected those of {living} servers, got {len(servers)}"
        )
    try:
        check(program)
    except InvalidPlanError as error:
        digits = [list(BCube(answer.n, answer.k).digits(server)) for server in servers]
        raise InvalidPlanError("transfers", _told(str(error), digits, edges)) from error
    return program, edges[-1]


def _program(answer: BmlAnswer) -> tuple[ListedProgram, list[int], list[int]]:
    """Return the program, the server of each rank, and the byte offset of each chunk."""
    import numpy as np

    bcube, transfers = BCube(answer.n, answer.k), or_none(answer.transfers) or ()
    steps, rounds = len(or_none(answer.steps) or ()) // 2, or_none(answer.rounds) or 1
    threads = 1 + max((transfer.thread for transfer in transfers), default=0)
    last = max((or_none(transfer.layer) or 0 for transfer in transfers), default=0)
    messages = []
    rows = zip(transfers, _ends(answer, steps, rounds), strict=True)
    for transfer, ends in rows:
        if transfer.length_bytes:
            layer, part = or_none(transfer.layer) or 0, or_none(transfer.part) or 0
            # Back-propagation finishes the last layer first.
            turn = (last - layer) * (2 * steps + rounds) + part
            adds = transfer.stage == "aggregate"
            step = turn + transfer.step + (0 if adds else steps)
            lane = (layer * rounds + part) * threads + transfer.thread
            stop = transfer.offset_bytes + transfer.length_bytes
            messages.append(
                Message(step, lane, *ends, transfer.level, transfer.offset_bytes, stop, adds)
            )
    edges = sorted({0}.union(*((moved.first, moved.stop) for moved in messages)))
    servers = sorted({end for moved in messages for end in (moved.sender, moved.receiver)})
    sent = np.zeros((len(servers), len(edges) - 1), dtype=bool)
    listed = []
    for moved in messages:
        sender, receiver = (bisect_left(servers, end) for end in (moved.sender, moved.receiver))
        first, stop = (bisect_left(edges, byte) for byte in (moved.first, moved.stop))
        if moved.adds:
            sent[sender, first:stop] = True
        listed.append(moved._replace(sender=sender, receiver=receiver, first=first, stop=stop))
    program = ListedProgram(
        f"bml({bcube.n}, {bcube.k})",
        len(servers),
        (last + 1) * rounds * threads,
        bcube.k,
        len(edges) - 1,
        tuple(listed),
        sent.argmin(axis=0).tolist() if servers else [],  # the owner: sends the chunk to nobody
        steps,
        placed=partial(_placed, tuple(edges)),
    )
    return program, servers, edges


def _ends(answer: BmlAnswer, steps: int, rounds: int) -> Iterator[tuple[int, int]]:
    """Yield the sender and receiver of each transfer; raise an error if a transfer does not fit."""
    bcube = BCube(answer.n, answer.k)
    edges: dict[tuple[int, int, int, int], int] = {}
    for number, transfer in enumerate(or_none(answer.transfers) or ()):
        path = f"transfers[{number}]"
        server = bcube.server(transfer.server, f"{path}.server")
        peer = bcube.server(transfer.peer, f"{path}.peer")
        if transfer.level >= bcube.k or peer not in bcube.neighbours(server, transfer.level):
            raise InvalidPlanError(path, "no such link")
        if transfer.step >= steps:
            raise InvalidPlanError(
                f"{path}.step", f"expected an integer < {steps}, got {transfer.step}"
            )
        layer, part = or_none(transfer.layer) or 0, or_none(transfer.part) or 0
        if part >= rounds:
            raise InvalidPlanError(f"{path}.part", f"there are no parts beside {part}")
        if answer.pieces is not UNSET and transfer.offset + transfer.length > answer.pieces:
            raise InvalidPlanError(f"{path}.length", f"there are {answer.pieces} pieces")
        stop = transfer.offset_bytes + transfer.length_bytes
        for piece, byte in (
            (transfer.offset, transfer.offset_bytes),
            (transfer.offset + transfer.length, stop),
        ):
            if edges.setdefault((layer, part, transfer.thread, piece), byte) != byte:
                raise InvalidPlanError(
                    f"{path}.offset_bytes", f"piece {piece} is somewhere else in other transfers"
                )
        yield server, peer


def _placed(edges: tuple[int, ...], elements: int, element_bytes: int) -> Layout:
    """Return the layout of a tensor: the offset of each chunk."""
    size = edges[-1]
    if elements * element_bytes != size:
        raise InvalidInputError(
            "transfers", f"a plan for {size} bytes, got a tensor of {elements * element_bytes}"
        )
    for edge in edges:
        if edge % element_bytes:
            raise InvalidInputError(
                "transfers",
                f"one begins at byte {edge}, cut inside an element of {element_bytes} bytes: "
                "plan with element_bytes",
            )
    return GivenLayout(edges)


def _told(error: str, servers: Sequence[list[int]], edges: Sequence[int]) -> str:
    """Return a checker's message with servers and bytes in place of ranks and chunks."""

    def span(match: re.Match[str]) -> str:
        first, last = int(match[1]), int(match[2] or match[1])
        return f"bytes {edges[first]}…{edges[last + 1] - 1}"

    text = re.sub(r"chunks? (\d+)(?:…(\d+))?", span, error)
    return re.sub(r"rank (\d+)", lambda match: f"server {servers[int(match[1])]}", text)
