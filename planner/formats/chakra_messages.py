"""A collective program as a rank's sends and receives in a Chakra execution trace.

Problem: a trace with collectives leaves the algorithm to the simulator. Write the planned one,
message by message. Method: each message with bytes is a send node and a receive node, matched by a
tag: its number among the messages between the two ranks. A send waits for the receives that last
wrote its data, and for all that add to it; receives wait for nothing of the program. A part's send
also waits for the same send of the part before it, as on one connection. Additions take no time;
the simulator chooses NICs.
Complexity: linear in the messages times their chunks.
Source: Chakra's feeder (mlcommons/chakra 1.0.0), whose attributes these are.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from planner.collectives.layout import Layout
from planner.collectives.program import Message, Program
from planner.formats.chakra_nodes import RECEIVE, SEND, node, trace

__all__ = ["MessageNode", "encoded", "message_nodes", "write_messages"]


class MessageNode(NamedTuple):
    """One end of a message: `kind` is `SEND` or `RECEIVE`, `needs` are earlier nodes."""

    name: str
    kind: int
    needs: tuple[int, ...]
    attributes: dict[str, int]


def message_nodes(
    program: Program,
    rank: int,
    layouts: Sequence[Layout],
    tags: Counter[tuple[int, int]] | None = None,
) -> list[MessageNode]:
    """Return a rank's sends and receives in the order of steps, sends first.

    `layouts` are those of the parts, each one step behind the one before. `tags` counts the earlier
    messages between each two ranks, and is updated; all ranks have to begin with the same.
    """
    tags = Counter() if tags is None else tags
    written: dict[tuple[int, int, int], list[int]] = defaultdict(list)  # by part, buffer, chunk
    sent: dict[Message, int] = {}
    nodes: list[MessageNode] = []
    both = [*program.sends(rank), *program.receives(rank)]
    every = [(part, message) for part in range(len(layouts)) for message in both]
    for part, message in sorted(every, key=lambda pair: _order(pair[0], pair[1], rank)):
        size = layouts[part].span(message.first, message.stop - message.first)
        if not size:
            continue
        sends = message.sender == rank
        ends = message.sender, message.receiver
        buffer = message.source if sends else message.target
        cells = [(part, buffer, chunk) for chunk in range(message.first, message.stop)]
        needs = set[int]()
        if sends:
            needs = {number for cell in cells for number in written.get(cell, ())}
            needs |= {sent[message]} if message in sent else set()
            sent[message] = len(nodes)
        else:
            for cell in cells:
                written[cell] = [*(written[cell] if message.adds else ()), len(nodes)]
        word = "send" if sends else "receive"
        peer = f"to rank {message.receiver}" if sends else f"from rank {message.sender}"
        of = f" of part {part}" if len(layouts) > 1 else ""
        nodes.append(
            MessageNode(
                f"{word} chunks {message.first}…{message.stop - 1}{of} {peer}, step {message.step}",
                SEND if sends else RECEIVE,
                tuple(sorted(needs)),
                {
                    "comm_size": size,
                    "comm_src": message.sender,
                    "comm_dst": message.receiver,
                    "comm_tag": tags[ends],
                },
            )
        )
        tags[ends] += 1
    return nodes


def _order(part: int, message: Message, rank: int) -> tuple[int, int, bool, Message]:
    """Return the sort key of a message: sends of a step precede its receives."""
    return message.step + part, part, message.sender != rank, message


def write_messages(program: Program, rank: int, layouts: Sequence[Layout]) -> bytes:
    """Return the trace of a rank that only runs a program once.

    Parameters
    ----------
    program : Program
        The program of all ranks.
    rank : int
        The rank whose trace is returned.
    layouts : sequence of Layout
        Chunk layouts of the parts: `planner.collectives.parts.layouts_of`.
    """
    return trace(encoded(message_nodes(program, rank, layouts), 1, ()))


def encoded(nodes: Sequence[MessageNode], first: int, needs: Sequence[int]) -> list[bytes]:
    """Return the nodes, numbered from `first`; each also waits for the nodes in `needs`."""
    return [
        node(
            first + place,
            message.name,
            message.kind,
            (*needs, *(first + number for number in message.needs)),
            0,
            message.attributes,
        )
        for place, message in enumerate(nodes)
    ]
