"""Agreement of all ranks on plan, model and optimiser, and a common start from rank 0's parameters.

Guarantee: Any difference stops every rank before the first transfer.
Complexity: Reads the optimiser's state once; broadcasts parameters and buffers, one message per
type.
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


def agree(
    world: World, plan: str, parameters: Mapping[str, nn.Parameter], optimizer: Optimizer
) -> None:
    """Compare plan, parameters and optimiser of all ranks; raise a `DisagreementError` on each."""
    names = {parameter: name for name, parameter in parameters.items()}
    world.agree("the plan", plan)
    world.agree("the model's parameters", digest(described(parameters)))
    world.agree("the optimiser and its settings", digest(settings(optimizer)))
    world.agree("the optimiser's state", state(optimizer, names))


def spread(model: nn.Module, world: World, group: Any) -> None:
    """Broadcast the parameters and buffers of rank 0."""
    tensors: dict[torch.dtype, list[Tensor]] = {}
    every = [*model.parameters(), *model.buffers()]
    for tensor in {id(tensor): tensor for tensor in every}.values():
        tensors.setdefault(tensor.dtype, []).append(tensor.detach())
    with torch.no_grad(), world.transferring():
        for several in tensors.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in several])
            if not flat.numel():
                continue
            # As bytes, since gloo does not support all types.
            distributed.broadcast(flat.view(torch.uint8), src=0, group=group)
            parts = torch.split(flat, [tensor.numel() for tensor in several])
            for tensor, part in zip(several, parts, strict=True):
                tensor.copy_(part.view_as(tensor))
