"""Executor of sharded training, with a parameter server for a slice on every rank.

Method: All cuts of all batches divide a parameter into cells, and each rank keeps and updates a
slice of each cell. A push sends each rank its slices of the gradients; a pull gathers the slices of
all ranks. `SlicedExecutor` says when.
Guarantee: Batches keep the planned order on every rank. After `finish` the weights are those of
plain data-parallel training. Faulty gradients stop the step. Limits and memory: docs/runtime.md.
Complexity: Each rank sends (N-1)/N of the parameters per direction, plus padding.
Source: Wang, Pi and Zhou, "Scalable Distributed DL Training: Batching Communication and
Computation"; a slice of every cell per rank shares the servers' work (own).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.families.collectives.recipes import Recipe
from planner.model.errors import InvalidPlanError
from planner.programs import Batch, Piece, ShardProgram, with_pieces
from planner.programs.forms import Direction
from planner.runtime.collectives.halves import (
    LEAST_BYTES,
    Halves,
    ProgramHalves,
    in_turn,
    most_columns,
)
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.executors.sliced import Sent, SlicedExecutor, check_elementwise
from planner.runtime.model.parameters import Elements, by_dtype, check_cover, elements_of, named
from planner.runtime.world.world import AT_ONCE, World


class ShardExecutor(SlicedExecutor):
    """Executes a `ShardProgram`; frozen parameters in it are skipped.

    The halves of `interpreters` push and pull the batches that name their programs; all others are
    exchanged directly.
    """

    def __init__(
        self,
        model: nn.Module,
        program: ShardProgram,
        optimizer: Optimizer,
        world: World,
        interpreters: Mapping[Recipe | None, Interpreter] = MappingProxyType({}),
    ) -> None:
        super().__init__(model, program, optimizer, world, "")
        gloo, trained = Halves(self.group), self._trained(program)

        def halves_for(batch: Batch) -> Halves:
            own = interpreters.get(batch.collective)
            return ProgramHalves(own, batch.depth) if own else gloo

        cells = cells_of(trained.batches, self.parameters)
        exchanged = [
            (direction, halves_for(batch), messages_of(batch, self.parameters, cells, world.size))
            for direction, batch in trained.transfers
        ]
        room = room_for([message for _, _, messages in exchanged for message in messages])
        pulled = (_cells(messages) for direction, _, messages in exchanged if direction == "pull")
        ordered = dict.fromkeys(cell.parameter for several in pulled for cell in several)
        slices = {
            cell: own
            for parameter in ordered
            for cell in cells[parameter]
            if len(own := slice_of(cell, world.rank, world.size))
        }
        numbers = {cell: number for number, cell in enumerate(slices)}
        means = {
            cell: torch.zeros(len(own), dtype=own.parameter.dtype) for cell, own in slices.items()
        }

        def sent(direction: Direction, halves: Halves, messages: Sequence[SliceMessage]) -> Sent:
            carried, exchange = _cells(messages), Exchange(halves, messages, world.rank, room)

            def work(gradients: Mapping[nn.Parameter, Tensor]) -> None:
                if direction == "push":
                    exchange.push(gradients, means)
                else:
                    exchange.pull(self.flats)

            return Sent(
                direction,
                tuple(dict.fromkeys(cell.parameter for cell in carried)),
                work,
                tuple(numbers[cell] for cell in carried if cell in numbers),
            )

        self.begin([sent(*each) for each in exchanged], slices.values(), list(means.values()))

    def check(self, program: ShardProgram) -> None:
        """Check that the plan carries each element once per direction, the push before the pull."""
        check_elementwise(self.optimizer)
        trained = self._trained(program)
        check_cover(trained.pulls, self.parameters, "pull.batches")
        check_cover(trained.pushes, self.parameters, "push.batches")
        cells, pushed, pulls = cells_of(trained.batches, self.parameters), set[Elements](), 0
        for direction, batch in trained.transfers:
            carried = list(cells_in(batch.pieces, self.parameters, cells))
            if direction == "push":
                pushed.update(carried)
                continue
            for cell in carried:
                if cell not in pushed:
                    name = self.names[cell.parameter]
                    raise InvalidPlanError(
                        f"pull.batches[{pulls}]", f"pulls {name} before all of it was pushed"
                    )
            pulls += 1

    def _trained(self, program: ShardProgram) -> ShardProgram:
        """Return the program without frozen parameters."""
        frozen = {name for name, _ in named(self.model)} - self.parameters.keys()
        return with_pieces(program, lambda piece: None if piece.parameter in frozen else piece)


# ---
# Messages that give each rank its slice of every cell.
#
# Problem: Plans may cut parameters, differently for pushes and pulls, and the data of one rank must
# be contiguous. Buffers as large as all parameters would use up the memory that sharding saves.
# Method: A message is a matrix with a row per rank and as many columns per cell as a slice has
# elements, padded. Large batches are cut between columns (`halves`). All messages share one buffer.
# Guarantee: The messages of a batch carry each element once. An uncut parameter is one cell.
# Complexity: O(cells + messages); a buffer of the largest message; less than N elements of padding
# per cell on N ranks.


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


def _cells(messages: Iterable[SliceMessage]) -> dict[Elements, None]:
    """Return the cells in messages, each once."""
    return dict.fromkeys(columns.cell for message in messages for columns in message.columns)


# ---
# Push and pull one batch of shards: copy into messages, exchange, copy out.
#
# Method: Two messages of a batch are in flight at a time (`halves.in_turn`), so that one is copied
# while another travels. Complexity: Each element is copied into a message and out of it; in a push,
# out of it only on its rank.


def room_for(messages: Sequence[SliceMessage]) -> Tensor:
    """Return buffers for the largest message, one pair for each message in flight."""
    largest = max(message.size_bytes for message in messages)
    return torch.zeros(AT_ONCE, 2, largest, dtype=torch.uint8)


class Exchange(NamedTuple):
    """The messages of a batch, and the `halves` that carry them; `room` comes from `room_for`."""

    halves: Halves
    messages: Sequence[SliceMessage]
    rank: int
    room: Tensor

    def push(
        self, gradients: Mapping[nn.Parameter, Tensor], means: Mapping[Elements, Tensor]
    ) -> None:
        """Write the means of all ranks' gradients, in this rank's slices, into `means`."""

        def begun(message: SliceMessage, sent: Tensor, received: Tensor) -> Callable[[], None]:
            for columns in message.columns:
                gradient = gradients[columns.cell.parameter].detach()
                for place, part in columns.parts(sent, gradient):
                    torch.mul(part, 1 / message.ranks, out=place)
            added = self.halves.scatter(sent, self.rank, received)

            def keep() -> None:
                total = added()
                for columns in message.columns:
                    first, last = columns.own(self.rank, message.ranks)
                    if first < last:
                        mean = total[columns.place : columns.place + last - first]
                        means[columns.cell][first:last] = mean

            return keep

        in_turn(begun(message, *rooms) for message, rooms in self._with_rooms())

    def pull(self, flats: Mapping[nn.Parameter, Tensor]) -> None:
        """Write all ranks' slices into `flats`, the parameters' values, which hold this rank's."""

        def begun(message: SliceMessage, matrix: Tensor) -> Callable[[], None]:
            for columns in message.columns:
                first, last = columns.own(self.rank, message.ranks)
                flat = flats[columns.cell.parameter]
                own = slice_of(columns.cell, self.rank, message.ranks).of(flat)[first:last]
                matrix[self.rank, columns.place : columns.place + last - first] = own
            arrived = self.halves.gather(matrix, self.rank)

            def put() -> None:
                arrived()
                for columns in message.columns:
                    for place, part in columns.parts(matrix, flats[columns.cell.parameter]):
                        part.copy_(place)

            return put

        in_turn(begun(message, rooms[0]) for message, rooms in self._with_rooms())

    def _with_rooms(self) -> Iterator[tuple[SliceMessage, list[Tensor]]]:
        """Yield each message with a pair of buffers."""
        for number, message in enumerate(self.messages):
            yield message, [message.matrix(room) for room in self.room[number % AT_ONCE]]
