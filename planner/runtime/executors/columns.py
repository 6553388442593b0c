"""How elements of parameters lie in messages that give each rank its share of every parameter.

Problem. Each rank keeps a share of every parameter, and plans may cut parameters, pushes elsewhere
than pulls. What goes to one rank, or comes from it, has to lie together. Buffers of the size of all
parameters would take more memory than sharding saves.

Method. A parameter's cells lie between all cuts of all batches, and each rank keeps a slice of each
cell: so every piece of a push or a pull is some whole cells, of which each rank has its part. A
message is a matrix with one row for each rank, in which each cell has some columns: as many as a
slice has elements, the last rows padded. A large batch is cut between columns into several messages
(`halves`). All messages share the same room, one after the other.

Guarantee. Together, the messages of a batch carry each element of its pieces once. A parameter that
is not cut is one cell.

Complexity. O(cells + messages) places, at most as many cells as pieces; the room is as large as the
largest message. A cell has less than N elements more on its way, on N ranks. Source. Own.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch, Piece
from planner.runtime.collectives.halves import LEAST_BYTES, most_columns
from planner.runtime.model.parameters import Elements, by_dtype, elements_of

__all__ = ["Columns", "SliceMessage", "cells_in", "cells_of", "messages_of", "slice_of"]


class Columns(NamedTuple):
    """Columns first … last-1 of a cell's, and where they begin in a message."""

    cell: Elements
    first: int
    last: int
    place: int

    def own(self, rank: int, ranks: int) -> tuple[int, int]:
        """Return which elements of a rank's slice these are, without padding."""
        width = len(slice_of(self.cell, rank, ranks))
        return min(self.first, width), min(self.last, width)

    def parts(self, matrix: Tensor, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parts of a message and of a parameter's flat values that belong together."""
        values = self.cell.of(flat)
        width = -(-len(values) // len(matrix))
        full, rest = divmod(len(values), width)
        columns = matrix[:, self.place : self.place + self.last - self.first]
        yield columns[:full], values[: full * width].view(full, width)[:, self.first : self.last]
        if rest > self.first:
            tail = values[full * width :][self.first : self.last]
            yield columns[full, : len(tail)], tail


class SliceMessage(NamedTuple):
    """A matrix of numbers of one type; see the module."""

    dtype: torch.dtype
    ranks: int
    width: int
    columns: tuple[Columns, ...]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, rounded up so that another one can lie behind it."""
        return -(-self.ranks * self.width * self.dtype.itemsize // 64) * 64

    def matrix(self, room: Tensor) -> Tensor:
        """Return the matrix at the beginning of some bytes."""
        elements = self.ranks * self.width
        flat = room[: elements * self.dtype.itemsize].view(self.dtype)
        return flat.view(self.ranks, self.width)


def cells_of(
    batches: Iterable[Batch], parameters: Mapping[str, nn.Parameter]
) -> dict[nn.Parameter, tuple[Elements, ...]]:
    """Return the elements of each parameter between all cuts of some batches, in their order."""
    cuts: dict[nn.Parameter, set[int]] = {}
    for batch in batches:
        for piece in batch.pieces:
            elements = elements_of(piece, parameters)
            cuts.setdefault(elements.parameter, set()).update(elements.span)
    return {
        parameter: tuple(Elements(parameter, *span) for span in pairwise(sorted(places)))
        for parameter, places in cuts.items()
    }


def messages_of(
    batch: Batch,
    parameters: Mapping[str, nn.Parameter],
    cells: Mapping[nn.Parameter, Sequence[Elements]],
    ranks: int,
    least_bytes: int = LEAST_BYTES,
) -> tuple[SliceMessage, ...]:
    """Return the messages of a batch; one if they would be less than some bytes."""
    messages = []
    for dtype, pieces in by_dtype(batch.pieces, parameters).items():
        carried = [(cell, -(-len(cell) // ranks)) for cell in cells_in(pieces, parameters, cells)]
        total = sum(width for _, width in carried)
        most = most_columns(total, ranks * dtype.itemsize, least_bytes)
        columns: list[Columns] = []
        width = 0
        for cell, end in carried:
            first = 0
            while first < end:
                last = min(end, first + most - width)
                columns.append(Columns(cell, first, last, width))
                width += last - first
                first = last
                if width == most:
                    messages.append(SliceMessage(dtype, ranks, width, tuple(columns)))
                    columns, width = [], 0
        if columns:
            messages.append(SliceMessage(dtype, ranks, width, tuple(columns)))
    return tuple(messages)


def cells_in(
    pieces: Iterable[Piece],
    parameters: Mapping[str, nn.Parameter],
    cells: Mapping[nn.Parameter, Sequence[Elements]],
) -> Iterator[Elements]:
    """Yield the cells that pieces are made of."""
    for piece in pieces:
        elements = elements_of(piece, parameters)
        several = cells[elements.parameter]
        first, last = (
            bisect_left(several, place, key=lambda cell: cell.start) for place in elements.span
        )
        yield from several[first:last]


def slice_of(cell: Elements, rank: int, ranks: int) -> Elements:
    """Return which elements of a cell a rank keeps."""
    width = -(-len(cell) // ranks)
    start, stop = (min(cell.start + turn * width, cell.stop) for turn in (rank, rank + 1))
    return Elements(cell.parameter, start, stop)
