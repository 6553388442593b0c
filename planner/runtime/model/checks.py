"""Check whether an executor can take over a model and an optimiser."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from planner.model.errors import InvalidInputError
from planner.model.units import counted
from planner.model.validation import shown


def check_model(model: nn.Module) -> None:
    """Check that hooks observe the model and that no other wrapper communicates for it.

    Raises an `InvalidInputError` that says what to do instead.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidInputError(
            "model", "expected a module of Python, which may call scripted ones"
        )
    for name, module in model.named_modules():
        path = f"model.{name}" if name else "model"
        kinds = {kind.__name__ for kind in type(module).__mro__}  # by name: importing FSDP is slow
        if isinstance(module, DistributedDataParallel | DataParallel):
            raise InvalidInputError(
                path,
                f"{type(module).__name__} sends gradients itself: attach to the module inside "
                "(.module), and call that; for DDP to follow a plan, see planner.runtime.ddp",
            )
        if kinds & {"FSDPModule", "FullyShardedDataParallel"}:
            raise InvalidInputError(
                path,
                "FSDP has sharded it and sends its parameters itself: attach to the model as it "
                "was before (a plan of ibatch shards it, too); for FSDP2 to follow a plan, see "
                "planner.runtime.fsdp2",
            )
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "placements"):
            raise InvalidInputError(
                f"model.{name}",
                "expected a plain parameter, got a DTensor: attach before it is distributed",
            )


def check_optimizer(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> None:
    """Check that an optimiser updates exactly the named parameters, and can update some at a time.

    Raises an `InvalidInputError` that says what to do instead.
    """
    if not isinstance(optimizer, Optimizer):
        raise InvalidInputError(
            "optimizer", f"expected a torch.optim.Optimizer, got {shown(optimizer)}"
        )
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise InvalidInputError(
            "optimizer",
            f"{type(optimizer).__name__} wraps another one, as trainers' do: pass the one inside",
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidInputError("optimizer", "LBFGS needs all gradients at once, several times")
    updated = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for parameter, name in names.items():
        if parameter not in updated:
            raise InvalidInputError("optimizer", f"does not update the model's {name}")
    if extra := [
        parameter
        for parameter in updated - names.keys()
        if parameter.requires_grad and parameter.numel()
    ]:
        raise InvalidInputError(
            "optimizer", f"updates {counted(len(extra), 'parameter')} that the model does not have"
        )
