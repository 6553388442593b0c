"""Rows of a matrix, one for each rank, summed up or handed out: the halves of an all-reduce.

Problem. Executors of shards lay what belongs to a rank in its row of a message. A program has
chunks, of which a rank may own several in any place, and cuts what is large into parts.

Method. Without a program all ranks exchange their rows directly (`exchange`). Large batches are cut
(`most_columns`), and two messages are on their way at once (`in_turn`): links do not idle while
something is copied, and no rank is far ahead of others. For a program, rows are padded so that all
chunks have one size in any number of parts, and copied to where the chunks of their ranks lie.

Complexity. One message more; by a program one copy of it, too, and a few elements a row, of large
ones less than 840 for each chunk of a rank. Source. Own.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from math import lcm
from typing import Any

import torch
from torch import Tensor

from planner.errors import InvalidInputError
from planner.runtime.collectives.exchange import exchange
from planner.runtime.collectives.interpreter import PARTS, Interpreter
from planner.runtime.world.world import AT_ONCE

__all__ = ["LEAST_BYTES", "Halves", "ProgramHalves", "in_turn", "most_columns"]

LEAST_BYTES = 2**18
"""A batch of no more is one message."""

MOST_MESSAGES = 16
"""Of one batch: each costs the processor as much as a small batch."""

_ANY_PARTS = lcm(*range(1, PARTS + 1))


def most_columns(columns: int, column_bytes: int, least_bytes: int = LEAST_BYTES) -> int:
    """Return how many columns the messages have, at most, in which a batch of so many leaves."""
    messages = max(min(-(-columns * column_bytes // least_bytes), MOST_MESSAGES), 1)
    return max(-(-columns // messages), 1)


def in_turn(begun: Iterable[Callable[[], object]]) -> None:
    """End what an iterator begins, in its order, and have it begin the next one before.

    Parameters
    ----------
    begun : iterable of callable
        Begins something and yields what waits for it. It begins a thing when all but
        ``AT_ONCE - 1`` of those before have ended.
    """
    going: deque[Callable[[], object]] = deque()
    for end in begun:
        going.append(end)
        if len(going) == AT_ONCE:
            going.popleft()()
    while going:
        going.popleft()()


class Halves:
    """A direct exchange of all ranks of a process group with all others.

    Each method begins something, and returns what waits for it.
    """

    def __init__(self, group: Any) -> None:
        self._group = group

    def scatter(self, rows: Tensor, rank: int, room: Tensor) -> Callable[[], Tensor]:
        """Sum up all ranks' rows of a rank, this one; there is room for as much."""
        sent, received = rows.unbind(), room.unbind()
        others = _others(rank, len(sent))
        wait = exchange(
            self._group,
            {peer: received[peer] for peer in others},
            {peer: sent[peer] for peer in others},
        )

        def summed_up() -> Tensor:
            wait()
            # Its own, and those of the others in turn, whoever sent first: the same bits always.
            total = sent[rank]
            for peer in others:
                total = torch.add(total, received[peer], out=received[rank])
            return total

        return summed_up

    def gather(self, rows: Tensor, rank: int) -> Callable[[], object]:
        """Fill the rows of all other ranks with theirs."""
        parts = rows.unbind()
        others = _others(rank, len(parts))
        return exchange(
            self._group, {peer: parts[peer] for peer in others}, dict.fromkeys(others, parts[rank])
        )


def _others(rank: int, ranks: int) -> list[int]:
    """Return all other ranks, each rank beginning with another one."""
    return [(rank + ahead) % ranks for ahead in range(1, ranks)]


class ProgramHalves(Halves):
    """Both halves of a program.

    Parameters
    ----------
    interpreter : Interpreter
        What follows the program.
    depth : int
        In how many parts to send everything at least.

    Raises
    ------
    InvalidInputError
        If ranks do not own equally many of its chunks.
    """

    def __init__(self, interpreter: Interpreter, depth: int = 1) -> None:
        self._interpreter, self._depth = interpreter, depth
        program = interpreter.program
        owned = Counter(map(program.owner, range(program.chunks)))
        if len({owned[rank] for rank in range(program.ranks)}) > 1:
            raise InvalidInputError(
                "plan", f"shards by {program.name}, which leaves some ranks without any"
            )

    def scatter(self, rows: Tensor, rank: int, room: Tensor) -> Callable[[], Tensor]:
        """Sum up all ranks' rows of a rank, this one, before it returns; there is room for it."""
        flat = self._flat(rows)
        for row, values in enumerate(rows):
            self._copy(flat, row, values, into=True)
        self._interpreter.reduce_scatter(flat, self._depth)
        self._copy(flat, rank, room[0], into=False)
        return lambda: room[0]

    def gather(self, rows: Tensor, rank: int) -> Callable[[], object]:
        """Fill the rows of all other ranks with theirs, before it returns."""
        flat = self._flat(rows)
        self._copy(flat, rank, rows[rank], into=True)
        self._interpreter.all_gather(flat, self._depth)
        for row, values in enumerate(rows):
            if row != rank:
                self._copy(flat, row, values, into=False)
        return lambda: None

    def _flat(self, rows: Tensor) -> Tensor:
        ranks, width = rows.shape
        step = self._interpreter.program.chunks // ranks
        size = ranks * (width + step)
        if self._interpreter.parts(size, rows.element_size(), self._depth) > 1:
            step *= lcm(_ANY_PARTS, self._depth)
        return rows.new_zeros(ranks * -(-width // step) * step)

    def _copy(self, flat: Tensor, rank: int, row: Tensor, *, into: bool) -> None:
        """Copy a row to its places, or from them."""
        first = 0
        for place in self._interpreter.owned(flat, self._depth, rank=rank):
            values = row[first : first + len(place)]
            if into:
                place[: len(values)] = values
            else:
                values.copy_(place[: len(values)])
            first += len(place)
