"""A communication hook of DDP that imposes a plan's order on its buckets.

Problem: DDP sends buckets in its own order, while a plan may order the same batches differently.
Method: DDP passes every bucket of a step to the hook, which delays it until the plan's earlier
buckets have begun, and returns a future. Parameters identify a bucket's batch. DDP's first step,
before it rebuilds its buckets, keeps DDP's order.
Guarantee: Gradients equal DDP's bit for bit. All ranks begin transfers in the same order. From the
second step on, a bucket that is no batch of the plan raises an `InvalidPlanError`.
Complexity: O(parameters) in each of the first two steps, then O(buckets).
Source: own; reducer.cpp of PyTorch 2.13, of which only public parts are used.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, distributed
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.programs import Program
from planner.runtime.ddp import whole_batches

_SETTLED = 2
"""DDP's buckets are final after these steps."""


def follow_order(ddp: DistributedDataParallel, program: Program) -> None:
    """Let DDP send its buckets in a plan's order.

    The buckets have to be the plan's batches, from `planner.runtime.ddp.as_ddp` or DDP with
    ``bucket_cap_mb_list=ddp_bucket_caps(program, model)``. Every rank has to call it.

    Parameters
    ----------
    ddp : DistributedDataParallel
        Without a hook.
    program : GradientProgram or ShardProgram
        The program of a plan, from `planner.programs.program_of`.

    Raises
    ------
    NotApplicableError
        If the plan is not one of gradients, or cuts a parameter.
    InvalidPlanError
        If it does not carry each trainable parameter once.
    """
    if not isinstance(ddp, DistributedDataParallel):
        raise InvalidInputError(
            "ddp", f"expected DistributedDataParallel, got {type(ddp).__name__}"
        )
    names, parameters = whole_batches(program, ddp.module)
    numbers = {
        frozenset(id(parameters[name]) for name in batch): number
        for number, batch in enumerate(names)
    }
    ddp.register_comm_hook(_InOrder(numbers, ddp.process_group), _InOrder.of)


class _InOrder:
    """State of a hook: the step, the batch of each known bucket, and the delayed buckets."""

    def __init__(self, numbers: Mapping[frozenset[int], int], group: Any) -> None:
        self._numbers = numbers
        self._group = group
        self._share = 1 / distributed.get_world_size(group)
        self._step = -1
        self._known: dict[int, int | None] = {}
        self._held: dict[int, tuple[Tensor, Future[Tensor]]] = {}
        self._next = 0

    def of(
        self,
        bucket: distributed.GradBucket,  # type: ignore[name-defined]
    ) -> Future[Tensor]:
        """Send a bucket, and those delayed behind it, in order; return the future of its sum."""
        index = bucket.index()
        if index == 0:
            self._step += 1
            self._next = 0
            self._held.clear()
            if self._step < _SETTLED:
                self._known.clear()
        if index not in self._known:
            parameters = frozenset(map(id, bucket.parameters()))
            self._known[index] = self._numbers.get(parameters)
        number, future = self._known[index], Future[Tensor]()
        if self._step == 0:
            self._send(bucket.buffer(), future)
            return future
        if number is None:
            raise InvalidPlanError(
                "groups",
                f"bucket {index} of DDP is no batch of the plan: make its buckets with "
                "planner.runtime.ddp.as_ddp(model, program, exact=True)",
            )
        self._held[number] = bucket.buffer(), future
        while self._next in self._held:
            self._send(*self._held.pop(self._next))
            self._next += 1
        return future

    def _send(self, flat: Tensor, future: Future[Tensor]) -> None:
        """Begin a transfer; its result completes the future."""
        flat.mul_(self._share)  # as DDP does by itself
        work = distributed.all_reduce(flat, group=self._group, async_op=True)

        def arrived(result: Future[Any]) -> None:
            try:
                result.value()
            except Exception as error:  # noqa: BLE001 - DDP raises it where it waits
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                future.set_result(flat)

        work.get_future().add_done_callback(arrived)
