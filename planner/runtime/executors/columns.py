"""Layout of messages that give each rank its slice of every parameter.

Problem: Plans may cut parameters, differently for pushes and pulls, and the data of one rank must
be contiguous. Buffers as large as all parameters would use up the memory that sharding saves.
Method: All cuts of all batches divide a parameter into cells, and each rank keeps a slice of each
cell. A message is a matrix with a row per rank and as many columns per cell as a slice has
elements, padded. Large batches are cut between columns (`halves`). All messages share one buffer.
Guarantee: The messages of a batch carry each element once. An uncut parameter is one cell.
Complexity: O(cells + messages); a buffer of the largest message; less than N elements of padding
per cell on N ranks.
Source: own.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from planner.programs import Batch, Piece
from planner.runtime.collectives.halves import LEAST_BYTES, most_columns
from planner.runtime.executors.base import Executor, parameters_of
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.collected import Gradients, version
from planner.runtime.model.parameters import Elements, by_dtype, elements_of
from planner.runtime.optimisers.sliced import SlicedOptimizer, flat_values


class Columns(NamedTuple):
    """Columns [first, last) of a cell, and the column `place` of the message where they begin."""

    cell: Elements
    first: int
    last: int
    place: int

    def own(self, rank: int, ranks: int) -> tuple[int, int]:
        """Return the range of a rank's slice that these columns hold, without padding."""
        width = len(slice_of(self.cell, rank, ranks))
        return min(self.first, width), min(self.last, width)

    def parts(self, matrix: Tensor, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield corresponding views of a message and of a parameter's flat values."""
        values = self.cell.of(flat)
        width = -(-len(values) // len(matrix))
        full, rest = divmod(len(values), width)
        columns = matrix[:, self.place : self.place + self.last - self.first]
        yield columns[:full], values[: full * width].view(full, width)[:, self.first : self.last]
        if rest > self.first:
            tail = values[full * width :][self.first : self.last]
            yield columns[full, : len(tail)], tail


class SliceMessage(NamedTuple):
    """A message: a matrix of `ranks` x `width` elements of one type."""

    dtype: torch.dtype
    ranks: int
    width: int
    columns: tuple[Columns, ...]

    @property
    def size_bytes(self) -> int:
        """Its size, rounded up so that another message can follow (bytes)."""
        return -(-self.ranks * self.width * self.dtype.itemsize // 64) * 64

    def matrix(self, room: Tensor) -> Tensor:
        """Return the matrix at the beginning of a byte buffer."""
        elements = self.ranks * self.width
        flat = room[: elements * self.dtype.itemsize].view(self.dtype)
        return flat.view(self.ranks, self.width)


def cells_of(
    batches: Iterable[Batch], parameters: Mapping[str, nn.Parameter]
) -> dict[nn.Parameter, tuple[Elements, ...]]:
    """Return the cells of each parameter: its element ranges between all cuts of the batches."""
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
    """Return the messages of a batch; a single one below `least_bytes`."""
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
    """Yield the cells of pieces."""
    for piece in pieces:
        elements = elements_of(piece, parameters)
        several = cells[elements.parameter]
        first, last = (
            bisect_left(several, place, key=lambda cell: cell.start) for place in elements.span
        )
        yield from several[first:last]


def slice_of(cell: Elements, rank: int, ranks: int) -> Elements:
    """Return the slice of a cell that a rank keeps."""
    width = -(-len(cell) // ranks)
    start, stop = (min(cell.start + turn * width, cell.stop) for turn in (rank, rank + 1))
    return Elements(cell.parameter, start, stop)


# ---
# Common part of executors in which each rank updates some elements of the parameters.


class SlicedExecutor(Executor):
    """An executor in which each rank updates some elements; see `optimisers.sliced`.

    ``executor.optimizer.state_dict()`` is the state of these elements alone: a checkpoint needs one
    of every rank, and as many ranks to resume. `close` gives the optimiser its parameters back,
    without that state.

    Values written into the model's parameters between steps count if all ranks write them after
    `finish`.
    """

    def begin(self, batches: Sequence[Iterable[nn.Parameter]], slices: Iterable[Elements]) -> None:
        """Take over the optimiser, to update this rank's slices, none of them empty.

        The gradients of each of `batches` leave together.
        """
        instead = "to clip or scale gradients takes their means, which no rank has as a whole"
        self.gradients = Gradients(batches, self.names, self.stop, instead)
        self.pulling: list[Ticket] = []
        """The pulls of the current step."""
        self.sliced = SlicedOptimizer(self.optimizer, slices)
        self.flats = {parameter: flat_values(parameter) for parameter in self.names}
        """Destination of new values: the parameter's own memory if it is contiguous."""
        self._groups = parameters_of(self.optimizer)
        self._versions = {parameter: version(parameter) for parameter in self.names}

    def remember(self) -> None:
        """End a backward pass: remember the settings for the updates of slices that follow."""
        self.gradients.forget()
        self.flats = {parameter: flat_values(parameter) for parameter in self.names}
        self.sliced.remember(self.flats)
        self._versions = {parameter: version(parameter) for parameter in self.names}
        self.gate.pending = set(self.names)

    def finish_all(self) -> None:
        """Finish all pending parameters, and serve the other ranks to the end."""
        for ticket in self.pulling:
            self.channel.wait(ticket)
        for parameter in tuple(self.gate.pending):
            if parameter in self.gate.pending:  # otherwise finished with another parameter
                self.finish_one(parameter)

    def put_in_place(self, parameter: nn.Parameter, batch: int) -> None:
        """Complete a pending parameter whose new values have arrived, the last ones in `batch`."""
        if version(parameter) != self._versions[parameter]:
            self.stop(
                f"{self.names[parameter]} was changed while new values were on their way: call "
                "finish() before",
                batch,
            )
        self.gate.pending.discard(parameter)
        with torch.inference_mode(mode=False), torch.no_grad():
            values = self.flats[parameter]
            if values.data_ptr() == parameter.data_ptr():
                increment_version(parameter)  # autograd must see the write of the channel's thread
            else:
                parameter.copy_(values.view_as(parameter))
        self._versions[parameter] = version(parameter)

    def close(self) -> None:
        """Finish, remove the hooks, and give the optimiser its parameters back."""
        if not self._closed:
            try:
                super().close()
            finally:
                self.sliced.restore()
