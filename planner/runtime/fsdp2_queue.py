"""Carries out FSDP2's collectives on CPUs one after the other, beside the computation.

Problem. On CPUs FSDP2 waits for every reduce-scatter, and for every all-gather that it does not
prefetch; gloo runs two collectives at once, which delays the first of them. A plan says otherwise:
one channel, or one for each kind, carries collectives in order while the model computes.

Method. A thread for each channel carries out what FSDP2 hands to it, in that order, in a process
group of its own: two threads on one group would mix up what they send. FSDP2 takes own all-gathers
and reduce-scatters (``set_custom_all_gather`` …): these put the collective into the queue. A gather
is waited for as FSDP2 waits for NCCL's. Before a reduce-scatter's input is allocated, the one so
many inputs before has ended; behind the backward pass all have. What FSDP2 itself does to the sum,
such as adding it to another or rounding it, needs the sum: then it is waited for at once. So are
reductions with replicas, which FSDP2 sums up between them itself.

Guarantee. Sums are those of FSDP2. Complexity. O(1) a collective. Source. Own; interfaces are those
of ``_fsdp_api.py`` of torch 2.13.
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

__all__ = ["queue_collectives"]

_ROUNDLESS = (torch.float32, torch.bfloat16)
"""Types of which FSDP2 lets the collective compute the mean."""


def queue_collectives(units: Sequence[FSDPModule], program: UnitProgram) -> None:
    """Let the units of a sharded model communicate beside its computation.

    Parameters
    ----------
    units : sequence of FSDPModule
        One module of each unit.
    program : UnitProgram
        How many inputs of reduce-scatters are kept, and whether these have their own channel.
    """
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
    """A thread that carries out collectives among some ranks, in the order in which they come."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._group = distributed.new_group(list(ranks), use_local_synchronization=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="collectives")

    def __call__(self, collective: Callable[..., object]) -> "_Queued":
        return _Queued(self._thread.submit(collective, group=self._group))


class _Queued(distributed.Work):
    """A collective that is carried out some time."""

    def __init__(self, future: "Future[object]") -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002 - the group has one
        self._future.result()
        return True


class _Allocating:
    """Room for what is sent, as FSDP2 makes it by itself."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Allocating):
    """All-gathers of a unit."""

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
    """Reduce-scatters of a unit."""

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
        """Whether FSDP2 computes with the sum in the backward pass."""
        if self._replicated or output.dtype not in _ROUNDLESS:
            return True
        return any(
            parameter.sharded_param.grad is not None
            or parameter.orig_dtype != output.dtype
            or getattr(parameter.sharded_param, "_post_accumulate_grad_hooks", None)
            for parameter in self._parameters
        )
