"""All ranks begin alike: with the same plan, model and optimiser, and rank 0's parameters.

Problem. Ranks that differ in what they were given would go on, each with another model.

Guarantee. Whatever differs ends every rank before the first transfer. Complexity: reads the
optimiser's state once, and sends the parameters and buffers once, as one message a type of numbers.
Source: own.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from planner.programs import digest
from planner.runtime.model.parameters import described
from planner.runtime.optimisers.state import settings, state
from planner.runtime.world.world import World

__all__ = ["agree", "spread"]


def agree(
    world: World, plan: str, parameters: Mapping[str, nn.Parameter], optimizer: Optimizer
) -> None:
    """Compare what has to be the same on all ranks, before the first transfer.

    Raises
    ------
    DisagreementError
        On every rank, if something is not.
    """
    names = {parameter: name for name, parameter in parameters.items()}
    world.agree("the plan", plan)
    world.agree("the model's parameters", digest(described(parameters)))
    world.agree("the optimiser and its settings", digest(settings(optimizer)))
    world.agree("the optimiser's state", state(optimizer, names))


def spread(model: nn.Module, world: World, group: Any) -> None:
    """Give all ranks the parameters and buffers of rank 0."""
    tensors: dict[torch.dtype, list[Tensor]] = {}
    every = [*model.parameters(), *model.buffers()]
    for tensor in {id(tensor): tensor for tensor in every}.values():
        tensors.setdefault(tensor.dtype, []).append(tensor.detach())
    with torch.no_grad(), world.transferring():
        for several in tensors.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in several])
            if not flat.numel():
                continue
            # As bytes, since gloo does not know all types.
            distributed.broadcast(flat.view(torch.uint8), src=0, group=group)
            parts = torch.split(flat, [tensor.numel() for tensor in several])
            for tensor, part in zip(several, parts, strict=True):
                tensor.copy_(part.view_as(tensor))
