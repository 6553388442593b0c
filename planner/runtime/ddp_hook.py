"""Communication hooks of DDP: `follow_order` imposes a plan's order, `audit` only records.

Problem: DDP sends buckets in its own order, while a plan may order the same batches differently.
Method: DDP passes every bucket of a step to the hook. `follow_order` delays a bucket until the
plan's earlier buckets have begun, and returns a future. Parameters identify a bucket's batch. DDP's
first step, before it rebuilds its buckets, keeps DDP's order. `audit` sends each bucket at once.
Guarantee: Gradients equal DDP's bit for bit. All ranks begin transfers in the same order. From the
second step on, a bucket that is no batch of the plan raises an `InvalidPlanError` under
`follow_order`; `audit` records it.
Complexity: O(parameters) in each of the first two steps, then O(buckets).
Source: own; reducer.cpp of PyTorch 2.13, of which only public parts are used.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, distributed
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.programs import Program
from planner.runtime.ddp import whole_batches

_SETTLED = 2
"""DDP's buckets are final after these steps."""


@dataclass(slots=True, eq=False)
class Travelled:
    """The transfer of one bucket in one step, on this rank.

    Attributes
    ----------
    step : int
        From 0.
    bucket : int
        Its number in DDP.
    batch : int or None
        The batch of the plan with the same parameters; None if there is none.
    size_bytes : int
        Its size.
    ready_ns, begun_ns, arrived_ns : int
        When its last gradient was ready, and when its transfer began and ended, by
        `time.monotonic_ns`; 0 until then.
    """

    step: int
    bucket: int
    batch: int | None
    size_bytes: int
    ready_ns: int
    begun_ns: int = 0
    arrived_ns: int = 0


@dataclass(slots=True, eq=False)
class Audit:
    """The record of a hook.

    Attributes
    ----------
    batches : tuple of tuple of str
        The plan's batches as names of parameters, in order.
    rows : list of Travelled
        One row per bucket and step, in the order in which transfers began.
    keep : int
        Number of most recent steps to keep.
    """

    batches: tuple[tuple[str, ...], ...]
    rows: list[Travelled] = field(default_factory=list)
    keep: int = 100

    @property
    def steps(self) -> tuple[int, ...]:
        """The recorded steps."""
        return tuple(dict.fromkeys(row.step for row in self.rows))

    def of(self, step: int) -> tuple[Travelled, ...]:
        """Return the buckets of a step, in the order in which they began."""
        return tuple(row for row in self.rows if row.step == step)

    def share_as_planned(self, step: int) -> float:
        """Return the share of a step's bytes that travelled in batches of the plan."""
        rows = self.of(step)
        size = sum(row.size_bytes for row in rows)
        planned = sum(row.size_bytes for row in rows if row.batch is not None)
        return planned / size if size else 1.0

    def out_of_order(self, step: int) -> int:
        """Return the number of pairs of the plan's batches that a step sent in reverse order."""
        order = [row.batch for row in self.of(step) if row.batch is not None]
        return sum(
            after < before for place, before in enumerate(order) for after in order[place + 1 :]
        )

    def held_ns(self, step: int) -> int:
        """Return the total delay between readiness and start of a step's buckets (ns)."""
        return sum(row.begun_ns - row.ready_ns for row in self.of(step))


def follow_order(ddp: DistributedDataParallel, program: Program) -> Audit:
    """Let DDP send its buckets in a plan's order; return the record, which grows with each step.

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
    return _registered(ddp, program, in_order=True)


def audit(ddp: DistributedDataParallel, program: Program) -> Audit:
    """Record when DDP's buckets travel, to compare with a plan; return the record.

    DDP may have any buckets. Errors are those of `follow_order`.
    """
    return _registered(ddp, program, in_order=False)


def _registered(ddp: DistributedDataParallel, program: Program, *, in_order: bool) -> Audit:
    if not isinstance(ddp, DistributedDataParallel):
        raise InvalidInputError(
            "ddp", f"expected DistributedDataParallel, got {type(ddp).__name__}"
        )
    names, parameters = whole_batches(program, ddp.module)
    seen = Audit(names)
    numbers = {
        frozenset(id(parameters[name]) for name in batch): number
        for number, batch in enumerate(names)
    }
    ddp.register_comm_hook(_Travel(seen, numbers, ddp.process_group, in_order), _Travel.of)
    return seen


class _Travel:
    """State of a hook: the step, its known buckets and the delayed ones."""

    def __init__(
        self, seen: Audit, numbers: Mapping[frozenset[int], int], group: Any, in_order: bool
    ) -> None:
        self._seen = seen
        self._numbers = numbers
        self._group = group
        self._share = 1 / distributed.get_world_size(group)
        self._in_order = in_order
        self._step = -1
        self._known: dict[int, int | None] = {}
        self._held: dict[int, tuple[Travelled, Tensor, Future[Tensor]]] = {}
        self._next = 0

    def of(
        self,
        bucket: distributed.GradBucket,  # type: ignore[name-defined]
    ) -> Future[Tensor]:
        """Send a bucket, and those delayed behind it, in order; return the future of its sum."""
        index = bucket.index()
        if index == 0:
            self._begin()
        if index not in self._known:
            parameters = frozenset(map(id, bucket.parameters()))
            self._known[index] = self._numbers.get(parameters)
        number, flat = self._known[index], bucket.buffer()
        row = Travelled(self._step, index, number, flat.nbytes, time.monotonic_ns())
        future: Future[Tensor] = Future()
        if not self._in_order or self._step == 0:
            self._send(row, flat, future)
            return future
        if number is None:
            raise InvalidPlanError(
                "groups",
                f"bucket {index} of DDP is no batch of the plan: make its buckets with "
                "planner.runtime.ddp.as_ddp(model, program, exact=True)",
            )
        self._held[number] = row, flat, future
        while self._next in self._held:
            self._send(*self._held.pop(self._next))
            self._next += 1
        return future

    def _begin(self) -> None:
        self._step += 1
        self._next = 0
        self._held.clear()
        if self._step < _SETTLED:
            self._known.clear()
        rows, oldest = self._seen.rows, self._step - self._seen.keep
        if rows and rows[0].step < oldest:
            rows[:] = [row for row in rows if row.step >= oldest]

    def _send(self, row: Travelled, flat: Tensor, future: Future[Tensor]) -> None:
        """Begin a transfer; its result completes the future."""
        self._seen.rows.append(row)
        flat.mul_(self._share)  # as DDP does by itself
        row.begun_ns = time.monotonic_ns()
        work = distributed.all_reduce(flat, group=self._group, async_op=True)

        def arrived(result: Future[Any]) -> None:
            row.arrived_ns = time.monotonic_ns()
            try:
                result.value()
            except Exception as error:  # noqa: BLE001 - DDP raises it where it waits
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                future.set_result(flat)

        work.get_future().add_done_callback(arrived)
