"""A collective program as a rank's sends and receives in a Chakra execution trace.

Problem. A trace with collectives leaves it to the simulator by which algorithm they run. Write the
one that was planned, message by message.

Method. A node for each message that has bytes, a send at one end and a receive at the other, which
belong together by their tag: the number of the message among those from the one rank to the other.
A send waits for the receives that last wrote what it sends, and, where sums are made, for all that
add to it; receives wait for nothing of the program. So steps need not keep pace with each other.
Additions take no time, and which NIC carries a message is the simulator's to say.

Complexity. Linear in the messages times their chunks.

Source. Chakra's feeder (mlcommons/chakra 1.0.0), whose attributes these are.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from planner.collectives.layout import Layout
from planner.collectives.program import Message, Program
from planner.formats.chakra_nodes import RECEIVE, SEND, node, trace

__all__ = ["MessageNode", "encoded", "message_nodes", "write_messages"]


class MessageNode(NamedTuple):
    """One end of a message.

    Attributes
    ----------
    name : str
        What it is, for people.
    kind : int
        `SEND` or `RECEIVE`.
    needs : tuple of int
        Which earlier nodes of the list it waits for.
    attributes : dict of str to int
        Its bytes, ranks and tag.
    """

    name: str
    kind: int
    needs: tuple[int, ...]
    attributes: dict[str, int]


def message_nodes(
    program: Program,
    rank: int,
    layout: Layout,
    tags: Counter[tuple[int, int]] | None = None,
) -> list[MessageNode]:
    """Return what a rank sends and receives, in the order of steps, sends first.

    Parameters
    ----------
    program : Program
        What all ranks do.
    rank : int
        Whose.
    layout : Layout
        Where the chunks are: `Program.layout`.
    tags : Counter, optional
        How many messages have gone from one rank to another before; those of this program are
        added. All ranks have to begin with the same.
    """
    tags = Counter() if tags is None else tags
    written: dict[tuple[int, int], list[int]] = defaultdict(list)  # by buffer and chunk
    nodes: list[MessageNode] = []
    both = sorted(
        [*program.sends(rank), *program.receives(rank)], key=lambda message: _order(message, rank)
    )
    for message in both:
        size = layout.span(message.first, message.stop - message.first)
        if not size:
            continue
        sends = message.sender == rank
        ends = message.sender, message.receiver
        buffer = message.source if sends else message.target
        cells = [(buffer, chunk) for chunk in range(message.first, message.stop)]
        needs = {number for cell in cells for number in written.get(cell, ())} if sends else set()
        if not sends:
            for cell in cells:
                written[cell] = [*(written[cell] if message.adds else ()), len(nodes)]
        word = "send" if sends else "receive"
        peer = f"to rank {message.receiver}" if sends else f"from rank {message.sender}"
        nodes.append(
            MessageNode(
                f"{word} chunks {message.first}…{message.stop - 1} {peer}, step {message.step}",
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


def _order(message: Message, rank: int) -> tuple[int, bool, Message]:
    """Return the place of a message: what is sent in a step is what was there before it."""
    return message.step, message.sender != rank, message


def write_messages(program: Program, rank: int, layout: Layout) -> bytes:
    """Return the trace of a rank that does nothing but run a program once.

    Parameters
    ----------
    program : Program
        What all ranks do.
    rank : int
        Whose trace.
    layout : Layout
        Where the chunks are: ``program.layout(elements, element_bytes)``.
    """
    return trace(encoded(message_nodes(program, rank, layout), 1, ()))


def encoded(nodes: Sequence[MessageNode], first: int, needs: Sequence[int]) -> list[bytes]:
    """Return nodes numbered from `first`, all of which wait for the nodes in `needs`."""
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
