"""Gives every rank the whole parameters and optimiser state that each had its slices of.

Problem. Under shards each rank updates its own slices, and alone has what the optimiser remembers
of them. After a failure the job goes on with other slices, or with none; parameters are mixed from
two steps by then.

Method. Each rank hands its slices' values and states to all others, as bytes. What has the shape of
a slice is put together element by element; the rest, such as counts of steps, is the same on all
ranks, since all are at the same step.

Guarantee. Every element is its owner's, bit by bit, on all ranks.

Complexity. All parameters and all state once to every rank, and their memory. Source: own.
"""

import io
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from planner.runtime.model.parameters import Elements
from planner.runtime.world.world import World

__all__ = ["Held", "put_together"]

Held = tuple[Tensor, dict[str, Any]]
"""The values of a slice, and what the optimiser remembers of it."""


def put_together(
    world: World, optimizer: Optimizer, slices: Sequence[Sequence[Elements]], mine: Iterable[Held]
) -> None:
    """Write what all ranks hold into the parameters, and into the optimiser's state.

    Every rank has to call it.

    Parameters
    ----------
    world : World
        The job.
    optimizer : Optimizer
        Of whole parameters.
    slices : sequence of sequence of Elements
        For each rank what it holds, in order; together all elements of their parameters.
    mine : iterable of Held
        This rank's, in that order.

    Raises
    ------
    CommunicationError
        If a rank does not take part.
    """
    values: dict[nn.Parameter, Tensor] = {}
    states: dict[nn.Parameter, dict[str, Any]] = {}
    for owned, theirs in zip(slices, _of_all(world, list(mine)), strict=True):
        for own, (part, state) in zip(owned, theirs, strict=True):
            parameter = own.parameter
            flat = values.setdefault(parameter, part.new_empty(parameter.numel()))
            own.of(flat).copy_(part)
            whole = states.setdefault(parameter, {})
            for key, value in state.items():
                if isinstance(value, Tensor) and value.dim() and value.shape == part.shape:
                    empty = value.new_empty(parameter.shape)
                    own.of(whole.setdefault(key, empty)).copy_(value)
                else:
                    whole[key] = value
    with torch.no_grad():
        for parameter, flat in values.items():
            parameter.copy_(flat.view_as(parameter))
            optimizer.state[parameter] = states[parameter]


def _of_all(world: World, mine: list[Held]) -> list[list[Held]]:
    """Return what every rank gives."""
    written = io.BytesIO()
    torch.save(mine, written)
    own = torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)
    sizes = world.gather("sizes of slices", str(len(own)))
    every = []
    for rank, size in enumerate(sizes):
        data = own if rank == world.rank else torch.empty(int(size), dtype=torch.uint8)
        with world.transferring():
            distributed.broadcast(data, group=world.group, group_src=rank)
        every.append(torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True))
    return every
