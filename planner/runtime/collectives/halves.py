"""Rows of a matrix, one for each rank, summed up or handed out by the halves of a program.

Problem. Executors of shards lay what belongs to a rank in its row of a message. A program has
chunks, of which a rank may own several in any place, and cuts what is large into parts.

Method. Rows are padded so that all chunks have one size in any number of parts, and copied to where
the chunks of their ranks lie.

Complexity. One copy of the message more, and a few elements a row; of large ones less than 840 for
each chunk of a rank.
"""

from math import lcm

import torch
from torch import Tensor

from planner.runtime.collectives.interpreter import PARTS, Interpreter

__all__ = ["Halves"]

_ANY_PARTS = lcm(*range(1, PARTS + 1))


class Halves:
    """Both halves of a program.

    Parameters
    ----------
    interpreter : Interpreter
        What follows the program.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def scatter(self, rows: Tensor, rank: int) -> Tensor:
        """Return the sum of all ranks' rows of a rank, this one."""
        flat = self._flat(rows)
        for row, values in enumerate(rows):
            self._copy(flat, row, values, into=True)
        self._interpreter.reduce_scatter(flat)
        total = torch.empty_like(rows[rank])
        self._copy(flat, rank, total, into=False)
        return total

    def gather(self, rows: Tensor, rank: int) -> None:
        """Fill the rows of all other ranks with theirs."""
        flat = self._flat(rows)
        self._copy(flat, rank, rows[rank], into=True)
        self._interpreter.all_gather(flat)
        for row, values in enumerate(rows):
            if row != rank:
                self._copy(flat, row, values, into=False)

    def _flat(self, rows: Tensor) -> Tensor:
        ranks, width = rows.shape
        step = self._interpreter.program.chunks // ranks
        if self._interpreter.parts(ranks * (width + step), rows.element_size()) > 1:
            step *= _ANY_PARTS
        return rows.new_zeros(ranks * -(-width // step) * step)

    def _copy(self, flat: Tensor, rank: int, row: Tensor, *, into: bool) -> None:
        """Copy a row to its places, or from them."""
        first = 0
        for place in self._interpreter.owned(flat, rank=rank):
            values = row[first : first + len(place)]
            if into:
                place[: len(values)] = values
            else:
                values.copy_(place[: len(values)])
            first += len(place)
