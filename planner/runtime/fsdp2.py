"""Plans of fully sharded training carried out by torch's FSDP2: units, prefetching, resharding.

Method: Each unit is one ``fully_shard`` call. Prefetch lists name the units to gather ahead; a list
with the unit itself stands for none, since FSDP2 reads an empty list as its own choice. Gathers
are asynchronous on the computation's stream (``_set_unshard_async_op``), so each starts where its
step issues it, except in plans made for FSDP2's own streams. On CPUs `queue_collectives` runs the
collectives. Recomputed modules are wrapped in ``torch.utils.checkpoint``.
Guarantee: Collectives start in the plan's order if the model computes the units in order; the
first forward pass with gradients checks that. Sizes are the plan's. Limits: docs/integrations.md.
Complexity: O(parameters · depth of the model), once.
Source: torch.distributed.fsdp of PyTorch 2.13.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd import Variable
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from planner.formats.exporters.fsdp2 import ASYNCHRONOUS, needed, prefetched
from planner.model.errors import (
    DisagreementError,
    InvalidInputError,
    InvalidPlanError,
    NotApplicableError,
    PlannerError,
)
from planner.model.validation import shown
from planner.programs import Program, UnitProgram, digest


def as_fsdp2(model: nn.Module, program: Program, mesh: Any = None, **options: Any) -> nn.Module:
    """Shard a model by a plan of `fsdp`; return it, changed in place.

    Make the optimiser afterwards, of the sharded parameters. `mesh` is that of ``fully_shard``, on
    CPUs ``init_device_mesh("cpu", (ranks,))``; with replicas it has two dimensions, replicas and
    shards. `options` are more arguments of ``fully_shard``, but not ``reshard_after_forward``,
    which the plan's units define.

    Raises a `NotApplicableError` if the program is no plan of `fsdp`, an `InvalidPlanError` if it
    does not fit the model, and a `DisagreementError` if ranks have different plans.
    """
    if not isinstance(program, UnitProgram):
        raise NotApplicableError("problem", "expected a plan of fsdp (planner plan --mode fsdp)")
    if "reshard_after_forward" in options:
        raise InvalidInputError("reshard_after_forward", "the plan says it for each unit")
    _check_mesh(program, mesh)
    streams = _has_streams(model)
    settings = dict(needed(program)) | ({} if streams else {ASYNCHRONOUS: True})
    for method in settings:
        if not hasattr(FSDPModule, method):
            raise PlannerError(
                f"torch {torch.__version__} has no FSDPModule.{method}, which this plan needs"
            )
    modules = _modules(model, program)
    _check_parameters(model, program, modules, options.get("mp_policy"))
    _agree(program)
    for unit, group in zip(program.units, modules, strict=True):
        for module in group if unit.recompute else ():
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)
        fully_shard(group, mesh=mesh, reshard_after_forward=unit.reshard, **options)
    root = fully_shard(model, mesh=mesh, **options)
    sharded = [_sharded(group) for group in modules]
    for head, (forward, backward) in zip(
        sharded, prefetched(program, streams=streams), strict=True
    ):
        head.set_modules_to_forward_prefetch([sharded[target] for target in forward])
        head.set_modules_to_backward_prefetch([sharded[target] for target in backward])
    for method, value in settings.items():
        getattr(root, method)(value)
    if not streams:
        queue_collectives(sharded, program)
    awaiting = [number for number, unit in enumerate(program.units) if not unit.reshard]
    for number, unit in enumerate(program.units):  # on their way at the end of the forward pass
        awaiting += [target for target in unit.forward_prefetch if target < number]

    def free_without_gradients(*_: Any) -> None:  # no backward pass will come
        for target in () if torch.is_grad_enabled() else awaiting:
            sharded[target].unshard()
            sharded[target].reshard()

    model.register_forward_hook(free_without_gradients)
    _check_first_pass(model, modules)
    return model


def as_units(model: nn.Module, program: UnitProgram, mesh: Any = None) -> nn.Module:
    """Shard a model in the units of a plan, but prefetch and free them by FSDP2's own rules."""
    for group in _modules(model, program):
        fully_shard(group, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _has_streams(model: nn.Module) -> bool:
    return next(model.parameters()).device.type != "cpu"


def _check_mesh(program: UnitProgram, mesh: Any) -> None:
    expected = (program.replicas, program.shards)[program.replicas == 1 :]
    shape = (distributed.get_world_size(),) if mesh is None else tuple(mesh.shape)
    if shape != expected:
        planned, ranks = (" x ".join(map(str, sizes)) for sizes in (expected, shape))
        raise InvalidInputError("mesh", f"planned for {planned} ranks, got {ranks}")


def _modules(model: nn.Module, program: UnitProgram) -> list[list[nn.Module]]:
    """Return the modules of each unit."""
    known = dict(model.named_modules())
    for number, unit in enumerate(program.units):
        for name in unit.modules:
            if not name or name not in known:
                raise InvalidPlanError(
                    f"units[{number}]", f"the model has no module {shown(name)} inside it"
                )
    return [[known[name] for name in unit.modules] for unit in program.units]


def _check_parameters(
    model: nn.Module,
    program: UnitProgram,
    modules: Sequence[Sequence[nn.Module]],
    precision: Any,
) -> None:
    """Check that the units hold each parameter of the model once, with the planned sizes."""
    unit_of: dict[nn.Parameter, int] = {}
    width = getattr(getattr(precision, "param_dtype", None), "itemsize", None)
    for number, (unit, group) in enumerate(zip(program.units, modules, strict=True)):
        own = {parameter for module in group for parameter in module.parameters()}
        for parameter in own:
            if unit_of.setdefault(parameter, number) != number:
                raise NotApplicableError(
                    f"units[{number}]",
                    f"a parameter is also in units[{unit_of[parameter]}]: plan with tied",
                )
        size = sum(parameter.numel() * (width or parameter.element_size()) for parameter in own)
        if size != unit.parameter_bytes:
            raise InvalidPlanError(
                f"units[{number}]",
                f"{unit.parameter_bytes} bytes are planned for {shown(unit.modules[0])} to "
                f"{shown(unit.modules[-1])}, the model has {size}",
            )
    for name, parameter in model.named_parameters():
        if parameter not in unit_of:
            raise InvalidPlanError("units", f"the model's {name} is in none of them")


def _agree(program: UnitProgram) -> None:
    """Check that all ranks have the same plan; otherwise they would mix up their messages."""
    plans: list[str] = [""] * distributed.get_world_size()
    distributed.all_gather_object(plans, digest(program))
    different = tuple(rank for rank, plan in enumerate(plans) if plan != plans[0])
    if different:
        raise DisagreementError("the ranks do not agree on the plan", different)


def _sharded(group: Sequence[nn.Module]) -> FSDPModule:
    """Return the module of a group that controls it: FSDP2 skips modules inside others."""
    for module in group:
        if isinstance(module, FSDPModule):
            return module
    raise PlannerError("fully_shard did not shard a module it was given")


def _check_first_pass(model: nn.Module, modules: Sequence[Sequence[nn.Module]]) -> None:
    """Check in the first forward pass with gradients that units come in the planned order."""
    begun: list[int] = []
    hooks: list[Any] = []

    def begin(number: int, _: nn.Module, args: Any, kwargs: Any) -> None:
        if number in begun or not torch.is_grad_enabled():
            return
        begun.append(number)
        if number != len(begun) - 1:
            raise InvalidPlanError(
                f"units[{len(begun) - 1}]", f"the model computes units[{number}] before it"
            )
        differentiable = any(
            isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves((args, kwargs))
        )
        if number and not differentiable:
            raise NotApplicableError(
                f"units[{number}]",
                "begins with a module whose inputs have no gradient: FSDP2 would scatter its "
                "gradients behind all others; let it begin with another module",
            )

    def end(*_: Any) -> None:
        if torch.is_grad_enabled():
            for hook in hooks:
                hook.remove()

    for number, group in enumerate(modules):
        for module in group:
            hook = partial(begin, number)
            hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    hooks.append(model.register_forward_hook(end))


# ---
# FSDP2's collectives on CPUs, one after the other, overlapping with the computation.
#
# Problem: On CPUs FSDP2 waits for every reduce-scatter and for all-gathers it does not prefetch.
# Gloo runs two collectives at once, which delays the first. Plans assume ordered channels.
# Method: One thread and process group per channel run FSDP2's collectives in order, through FSDP2's
# hooks for custom all-gathers and reduce-scatters. An input buffer of a reduce-scatter is allocated
# once the collective `buffers` inputs earlier has ended. Sums that FSDP2 processes at once (adds,
# rounds or reduces over replicas) are awaited at once; all others at the end of the backward pass.
# Source: interfaces of ``_fsdp_api.py`` of torch 2.13.


_ROUNDLESS = (torch.float32, torch.bfloat16)
"""Data types for which FSDP2 lets the collective compute the mean."""


def queue_collectives(units: Sequence[FSDPModule], program: UnitProgram) -> None:
    """Queue the collectives of a sharded model; `units` holds one module of each unit."""
    groups: list[Any] = [module._get_fsdp_state()._fsdp_param_group for module in units]
    ranks = distributed.get_process_group_ranks(groups[0]._all_gather_process_group)
    gathers = scatters = _Queue(ranks)
    if program.separate:
        scatters = _Queue(ranks)
    held: deque[_Queued] = deque()
    for module, group in zip(units, groups, strict=True):
        parameters = tuple(group.fsdp_params)
        gather: Any = _AllGather(gathers)
        scatter: Any = _ReduceScatter(
            scatters, held, program.buffers, parameters, program.replicas > 1
        )
        module.set_custom_all_gather(gather)
        module.set_custom_reduce_scatter(scatter)


class _Queue:
    """A thread that runs the collectives among some ranks in order."""

    def __init__(self, ranks: Sequence[int]) -> None:
        job: Any = distributed.group.WORLD
        # By default gloo's groups wait for half an hour, even if the job's own group does not.
        timeout = job._get_backend(torch.device("cpu")).options._timeout
        self._group = distributed.new_group(
            list(ranks), timeout=timeout, use_local_synchronization=True
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="collectives")

    def __call__(self, collective: Callable[..., object]) -> "_Queued":
        return _Queued(self._thread.submit(collective, group=self._group))


class _Queued(distributed.Work):
    def __init__(self, future: "Future[object]") -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002 - the group has one
        self._future.result()
        return True


class _AllGather:
    def __init__(self, queue: _Queue) -> None:
        self._queue = queue

    def allocate(self, size: Sequence[int], **kind: Any) -> Tensor:
        return torch.empty(*size, **kind)

    def __call__(
        self, *, output_tensor: Tensor, input_tensor: Tensor, async_op: bool = False, **_: Any
    ) -> _Queued | None:
        work = self._queue(partial(distributed.all_gather_single, output_tensor, input_tensor))
        if async_op:
            return work
        work.wait()
        return None


class _ReduceScatter:
    def __init__(
        self,
        queue: _Queue,
        held: "deque[_Queued]",
        buffers: int,
        parameters: Sequence[Any],
        replicated: bool,
    ) -> None:
        self._queue, self._held, self._buffers = queue, held, buffers
        self._parameters, self._replicated = parameters, replicated

    def allocate(self, size: Sequence[int], **kind: Any) -> Tensor:
        while len(self._held) >= self._buffers:
            self._held.popleft().wait()
        return torch.empty(*size, **kind)

    def __call__(self, *, output_tensor: Tensor, input_tensor: Tensor, op: Any, **_: Any) -> None:
        scatter = partial(distributed.reduce_scatter_single, output_tensor, input_tensor, op=op)
        self._held.append(self._queue(scatter))
        if self._read_at_once(output_tensor):
            self._finish()
        else:
            Variable._execution_engine.queue_callback(self._finish)

    def _finish(self) -> None:
        while self._held:
            self._held.popleft().wait()

    def _read_at_once(self, output: Tensor) -> bool:
        """Return whether FSDP2 computes with the sum within the backward pass."""
        if self._replicated or output.dtype not in _ROUNDLESS:
            return True
        return any(
            parameter.sharded_param.grad is not None
            or parameter.orig_dtype != output.dtype
            or getattr(parameter.sharded_param, "_post_accumulate_grad_hooks", None)
            for parameter in self._parameters
        )
