"""How elements of parameters lie in messages that give each rank its slice of every parameter.

Problem. Each rank keeps one slice of every parameter; what goes to one rank, or comes from it, has
to lie together. Buffers of the size of all parameters would take more memory than sharding saves.

Method. A message is a matrix with one row for each rank, in which each parameter has some columns:
as many as a slice has elements, the last rows padded. A batch that is larger than a limit is cut
between columns into several messages. All messages share the same room, one after the other.

Guarantee. Together, the messages of a batch carry each element of its parameters once.

Complexity. O(parameters + messages) places; the room is as large as the largest message.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from planner.programs import Batch
from planner.runtime.model.parameters import Elements, by_dtype

__all__ = ["Columns", "SliceMessage", "messages_of", "slice_of"]


class Columns(NamedTuple):
    """Columns first … last-1 of a parameter's, and where they begin in a message."""

    parameter: nn.Parameter
    first: int
    last: int
    place: int

    def own(self, rank: int, ranks: int) -> tuple[int, int]:
        """Return which elements of a rank's slice these are, without padding."""
        width = len(slice_of(self.parameter, rank, ranks))
        return min(self.first, width), min(self.last, width)

    def parts(self, matrix: Tensor, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parts of a message and of flat values that belong together."""
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


def messages_of(
    batch: Batch, parameters: Mapping[str, nn.Parameter], ranks: int, most_bytes: int
) -> tuple[SliceMessage, ...]:
    """Return the messages of a batch, none larger than a limit (or than one column)."""
    messages = []
    for dtype, pieces in by_dtype(batch.pieces, parameters).items():
        most = max(most_bytes // (ranks * dtype.itemsize), 1)
        columns: list[Columns] = []
        width = 0
        for piece in pieces:
            parameter = parameters[piece.parameter]
            total, first = -(-parameter.numel() // ranks), 0
            while first < total:
                last = min(total, first + most - width)
                columns.append(Columns(parameter, first, last, width))
                width += last - first
                first = last
                if width == most:
                    messages.append(SliceMessage(dtype, ranks, width, tuple(columns)))
                    columns, width = [], 0
        if columns:
            messages.append(SliceMessage(dtype, ranks, width, tuple(columns)))
    return tuple(messages)


def slice_of(parameter: nn.Parameter, rank: int, ranks: int) -> Elements:
    """Return which of a parameter's elements a rank keeps."""
    size = parameter.numel()
    width = -(-size // ranks)
    return Elements(parameter, min(rank * width, size), min((rank + 1) * width, size))
