"""Impose the pull batches of a plan on torch's FSDP2 as its all-gathers.

Method: ``fully_shard`` with a list of modules gathers their parameters together. Parameter names
give the modules of a batch; a module without a forward pass (such as a ``ParameterList``) counts
for the enclosing one. A hook before the model's forward pass starts all all-gathers in the plan's
order by ``unshard(async_op=True)``, without which nothing overlaps on a CPU.
Guarantee: One all-gather per batch and forward pass, in order. Limits: docs/integrations.md.
Complexity: O(parameters · depth of the model), once.
Source: Wang, Pi, Zhou, "iBatch", AAAI 2019; torch.distributed.fsdp of PyTorch 2.13, public parts.
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from planner.formats.exporters.frameworks import pull_batches
from planner.formats.exporters.fsdp2 import ModuleGroups, module_groups, registered_in
from planner.model.errors import PlannerError
from planner.programs import Program, UnitProgram
from planner.runtime.fsdp2_units import shard_in_units
from planner.runtime.model.parameters import check_cover


def as_fsdp2(
    model: nn.Module, program: Program, mesh: Any = None, *, ahead: bool = True, **options: Any
) -> nn.Module:
    """Shard a model in the pull batches of a plan; return it, changed in place.

    Make the optimiser afterwards, of the sharded parameters.

    Parameters
    ----------
    model : Module
        The same on all ranks.
    program : ShardProgram or UnitProgram
        A program with pulls, or the units of a plan of `fsdp` (`planner.runtime.fsdp2_units`).
    mesh : DeviceMesh, optional
        As for ``fully_shard``; on CPUs ``init_device_mesh("cpu", (ranks,))``.
    ahead : bool
        Whether to start all all-gathers of pulls at the start of the forward pass.
    **options
        Of ``fully_shard``, such as ``reshard_after_forward``: True gathers again in the backward
        pass, False keeps parameters until then. Units define it themselves.

    Raises
    ------
    NotApplicableError
        If no groups of modules match the parameters of the batches.
    InvalidPlanError
        If the plan does not carry each trainable parameter once.
    PlannerError
        If this torch lacks a method that the plan needs, and other errors of
        `planner.runtime.fsdp2_units.shard_in_units`.
    """
    if isinstance(program, UnitProgram):
        return shard_in_units(model, program, mesh, **options)
    planned = fsdp2_groups(program, model)
    groups = [[model.get_submodule(name) for name in group] for group in planned.groups]
    for number in planned.shard_order:
        fully_shard(groups[number], mesh=mesh, **options)
    if not any("" in group for group in planned.groups):
        fully_shard(model, mesh=mesh, **options)
    sharded = [_sharded(group) for group in groups]
    if ahead:
        model.register_forward_pre_hook(_starting(sharded))
    return model


def fsdp2_groups(program: Program, model: nn.Module) -> ModuleGroups:
    """Return the modules of each pull batch of a plan.

    Raises a `NotApplicableError` if no groups of modules match the batches, and an
    `InvalidPlanError` if the plan does not carry each trainable parameter once.
    """
    batches = pull_batches(program)
    trainable = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    check_cover(batches, trainable, "batches")

    def owner(parameter: str) -> str:
        name = registered_in(parameter)
        while name and not _runs(model.get_submodule(name)):
            name = registered_in(name)
        return name

    return module_groups(batches, owner)


def _runs(module: nn.Module) -> bool:
    return type(module).forward is not nn.Module.forward


def _sharded(group: list[nn.Module]) -> FSDPModule:
    """Return the module of a group that controls it: FSDP2 skips modules inside others."""
    for module in group:
        if isinstance(module, FSDPModule):
            return module
    raise PlannerError("fully_shard did not shard a module it was given")


def _starting(groups: list[FSDPModule]) -> Callable[..., None]:
    def start(*_: Any) -> None:
        for group in groups:
            group.unshard(async_op=True)

    return start
