"""Push and pull one batch of shards: copy into messages, exchange, copy out.

Method: Two messages of a batch are in flight at a time (`halves.in_turn`), so that one is copied
while another travels.
Complexity: Each element is copied into a message and out of it; in a push, out of it only on its
rank.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from planner.runtime.collectives.halves import Halves, in_turn
from planner.runtime.executors.columns import SliceMessage, slice_of
from planner.runtime.model.parameters import Elements
from planner.runtime.world.world import AT_ONCE


def room_for(messages: Sequence[SliceMessage]) -> Tensor:
    """Return buffers for the largest message, one pair for each message in flight."""
    largest = max(message.size_bytes for message in messages)
    return torch.zeros(AT_ONCE, 2, largest, dtype=torch.uint8)


def push(
    halves: Halves,
    messages: Sequence[SliceMessage],
    rank: int,
    room: Tensor,
    gradients: Mapping[nn.Parameter, Tensor],
    means: Mapping[Elements, Tensor],
) -> None:
    """Write the means of all ranks' gradients, in this rank's slices of cells, into `means`."""

    def begun(message: SliceMessage, sent: Tensor, received: Tensor) -> Callable[[], None]:
        for columns in message.columns:
            gradient = gradients[columns.cell.parameter].detach()
            for place, part in columns.parts(sent, gradient):
                torch.mul(part, 1 / message.ranks, out=place)
        added = halves.scatter(sent, rank, received)

        def keep() -> None:
            total = added()
            for columns in message.columns:
                first, last = columns.own(rank, message.ranks)
                if first < last:
                    mean = total[columns.place : columns.place + last - first]
                    means[columns.cell][first:last] = mean

        return keep

    in_turn(
        begun(message, *map(message.matrix, room[number % AT_ONCE]))
        for number, message in enumerate(messages)
    )


def pull(
    halves: Halves,
    messages: Sequence[SliceMessage],
    rank: int,
    room: Tensor,
    flats: Mapping[nn.Parameter, Tensor],
) -> None:
    """Write all ranks' slices into `flats`, the parameters' values, which hold this rank's."""

    def begun(message: SliceMessage, matrix: Tensor) -> Callable[[], None]:
        for columns in message.columns:
            first, last = columns.own(rank, message.ranks)
            flat = flats[columns.cell.parameter]
            own = slice_of(columns.cell, rank, message.ranks).of(flat)[first:last]
            matrix[rank, columns.place : columns.place + last - first] = own
        arrived = halves.gather(matrix, rank)

        def put() -> None:
            arrived()
            for columns in message.columns:
                for place, part in columns.parts(matrix, flats[columns.cell.parameter]):
                    part.copy_(place)

        return put

    in_turn(
        begun(message, message.matrix(room[number % AT_ONCE, 0]))
        for number, message in enumerate(messages)
    )
