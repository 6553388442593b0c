"""Checks that what servers send to each other adds up every contribution exactly once.

Problem. A plan may come from a file. Before its first transfer it has to be known that all servers
end with the sum, whatever made the plan, however far servers drift apart.

Method. Ranges that no transfer cuts are followed through all steps. In the aggregation each server
but one sends a range once, after everything it receives of it; in the broadcast each gets the range
once, from one that has had the sum since an earlier step. A range belongs to one thread.

Guarantee. Steps only grow on the way of a contribution, so it reaches the one server that keeps the
range, once. What a step needs has arrived in steps before it.

Complexity. O(servers·ranges) memory, O(transfers·ranges of one) time.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.errors import InvalidPlanError

__all__ = ["Row", "check_rows"]


class Row(NamedTuple):
    """A server sends a range to a neighbour.

    Attributes
    ----------
    turn : tuple of int
        When: the layer's turn and the step.
    part : int
        Which part of the layer.
    thread, server, level, peer : int
        Who, over which link.
    start, stop : int
        The range: of elements, bytes or pieces.
    adds : bool
        Whether the peer adds it to its own, or takes it as the sum.
    """

    turn: tuple[int, int]
    part: int
    thread: int
    server: int
    level: int
    peer: int
    start: int
    stop: int
    adds: bool


def check_rows(
    rows: Iterable[Row], servers: Sequence[int], size: int, left_out: Sequence[int] = ()
) -> None:
    """Check that all servers end with every contribution exactly once.

    Parameters
    ----------
    rows : iterable of Row
        What all servers send.
    servers : sequence of int
        Those that take part, in order.
    size : int
        Where the last range ends.
    left_out : sequence of int
        Where ranges of length 1 start that need not be summed up.

    Raises
    ------
    InvalidPlanError
        At the first thing that is wrong.
    """
    import numpy as np

    in_order = sorted(rows, key=lambda row: (not row.adds, row.turn))
    # Between two cuts in a row all elements have the same fate: one column stands for them.
    edges = {0, size, *left_out, *(start + 1 for start in left_out)}
    cuts = sorted(edges.union(*((row.start, row.stop) for row in in_order)))
    place = {cut: number for number, cut in enumerate(cuts)}
    line = {server: number for number, server in enumerate(servers)}
    turns = {turn: number for number, turn in enumerate(sorted({row.turn for row in in_order}))}
    never = len(turns)
    # By server and column: the turn in which it was passed on, that of the last addition, and that
    # in which the sum arrived. Who passes a column on does so once, with all that it was sent, and
    # gets nothing later: so what is passed on forms a tree, and whoever never passes it on is its
    # root and has the sum: it remains to check that each column has one such server.
    shape = len(servers), len(cuts) - 1
    sent, held = (np.full(shape, never, dtype=np.int32) for _ in range(2))
    received = np.full(shape, -1, dtype=np.int32)
    thread = np.full(shape[1], -1)
    summed = False
    needed = np.ones(shape[1], dtype=bool)
    needed[[place[start] for start in left_out]] = False
    for row in in_order:
        span, turn = slice(place[row.start], place[row.stop]), turns[row.turn]
        sender, receiver = line[row.server], line[row.peer]
        used = needed[span]
        where = f"{'aggregate' if row.adds else 'broadcast'} {row.turn}, server {row.server}"
        if ((thread[span] != -1) & (thread[span] != row.thread) & used).any():
            raise InvalidPlanError(where, "what it sends is another thread's too")
        thread[span] = row.thread
        if row.adds:
            if ((sent[sender, span] != never) & used).any():
                raise InvalidPlanError(where, "what it sends was sent before")
            if ((received[sender, span] >= turn) & used).any():
                raise InvalidPlanError(where, "what it sends arrives in the same step")
            if ((sent[receiver, span] != never) & used).any():
                raise InvalidPlanError(where, f"server {row.peer} has passed it on already")
            sent[sender, span] = turn
            received[receiver, span] = turn
            continue
        if not summed:
            held[sent == never] = received[sent == never]
            summed = True
        if ((held[sender, span] >= turn) & used).any():
            raise InvalidPlanError(where, "what it sends is not the sum yet")
        if ((held[receiver, span] != never) & used).any():
            raise InvalidPlanError(where, f"server {row.peer} has the sum already")
        held[receiver, span] = turn
    for number in np.flatnonzero(needed).tolist():
        where = f"range {cuts[number]}…{cuts[number + 1] - 1}"
        owners = int((sent[:, number] == never).sum())
        if owners != 1 and len(servers) > 1:
            raise InvalidPlanError(where, f"is summed up on {owners} servers, expected one")
        if len(servers) > 1 and (held[:, number] == never).any():
            lacking = servers[int(np.argmax(held[:, number] == never))]
            raise InvalidPlanError(where, f"server {lacking} never gets the sum")
