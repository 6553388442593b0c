"""Rows of a matrix, one for each rank, summed up or handed out: the halves of an all-reduce.

Problem. Executors of shards lay what belongs to a rank in its row of a message. A program has
chunks, of which a rank may own several in any place, and cuts what is large into parts.

Method. Without a program gloo exchanges rows directly and gathers them. For one, rows are padded so
that all chunks have one size in any number of parts, and copied to where the chunks of their ranks
lie.

Complexity. One message more; by a program one copy of it, too, and a few elements a row, of large
ones less than 840 for each chunk of a rank. Source. Own.
"""

from collections import Counter
from math import lcm
from typing import Any

from torch import Tensor, distributed

from planner.errors import InvalidInputError
from planner.runtime.collectives.interpreter import PARTS, Interpreter

__all__ = ["Halves", "ProgramHalves"]

_ANY_PARTS = lcm(*range(1, PARTS + 1))


class Halves:
    """Gloo's exchange of all with all, and its all-gather, in a process group."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def scatter(self, rows: Tensor, rank: int, room: Tensor) -> Tensor:
        """Return the sum of all ranks' rows of a rank, this one; there is room for as much."""
        distributed.all_to_all_single(room.view(-1), rows.view(-1), group=self._group)
        # In the order of the ranks, whoever sent first: sums are the same bits in every run.
        for row in room[1:]:
            room[0] += row
        return room[0]

    def gather(self, rows: Tensor, rank: int) -> None:
        """Fill the rows of all other ranks with theirs."""
        distributed.all_gather(list(rows.unbind()), rows[rank], group=self._group)


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

    def scatter(self, rows: Tensor, rank: int, room: Tensor) -> Tensor:
        """Return the sum of all ranks' rows of a rank, this one; there is room for it."""
        flat = self._flat(rows)
        for row, values in enumerate(rows):
            self._copy(flat, row, values, into=True)
        self._interpreter.reduce_scatter(flat, self._depth)
        self._copy(flat, rank, room[0], into=False)
        return room[0]

    def gather(self, rows: Tensor, rank: int) -> None:
        """Fill the rows of all other ranks with theirs."""
        flat = self._flat(rows)
        self._copy(flat, rank, rows[rank], into=True)
        self._interpreter.all_gather(flat, self._depth)
        for row, values in enumerate(rows):
            if row != rank:
                self._copy(flat, row, values, into=False)

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
