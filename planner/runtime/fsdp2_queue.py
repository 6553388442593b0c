"""Run FSDP2's collectives on CPUs one after the other, overlapping with the computation.

Problem: On CPUs FSDP2 waits for every reduce-scatter and for all-gathers it does not prefetch. Gloo
runs two collectives at once, which delays the first. Plans assume one or two ordered channels.
Method: One thread and process group per channel run FSDP2's collectives in order, through FSDP2's
hooks for custom all-gathers and reduce-scatters. An input buffer of a reduce-scatter is allocated
once the collective `buffers` inputs earlier has ended. Sums that FSDP2 processes at once (adds,
rounds or reduces over replicas) are awaited at once; all others at the end of the backward pass.
Guarantee: Sums are those of FSDP2.
Complexity: O(1) per collective.
Source: own; interfaces of ``_fsdp_api.py`` of torch 2.13.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd import Variable
from torch.distributed.fsdp import FSDPModule

from planner.programs import UnitProgram

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
        self._group = distributed.new_group(list(ranks), use_local_synchronization=True)
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


class _Allocating:
    """Allocation of buffers, as in FSDP2."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Allocating):
    def __init__(self, queue: _Queue) -> None:
        self._queue = queue

    def __call__(
        self, *, output_tensor: Tensor, input_tensor: Tensor, async_op: bool = False, **_: Any
    ) -> _Queued | None:
        work = self._queue(partial(distributed.all_gather_single, output_tensor, input_tensor))
        if async_op:
            return work
        work.wait()
        return None


class _ReduceScatter(_Allocating):
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

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        while len(self._held) >= self._buffers:
            self._held.popleft().wait()
        return super().allocate(size, dtype=dtype, device=device)

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
