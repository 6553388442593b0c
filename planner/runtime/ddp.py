"""Impose the batches of a plan on torch's DistributedDataParallel (DDP), and their order.

Method: Batches of parameters that are consecutive in DDP's filling order become buckets by
``bucket_cap_mb_list``, from the second step on. If the plan sends them in another order, a
communication hook delays every bucket until the plan's earlier ones have begun.
Guarantee: Buckets are the plan's batches, or an `InvalidPlanError` is raised: by the hook, or by
the first forward pass that knows DDP's buckets. Gradients equal DDP's bit for bit. All ranks begin
transfers in the same order. DDP cuts no parameter, and waits for all buckets at the end of the
backward pass, so nothing overlaps with the next forward pass.
Complexity: O(parameters) per step.
Source: DDP and reducer.cpp of PyTorch 2.13, of which only public parts are used.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from planner.formats.exporters.frameworks import gradient_batches, mebibytes, whole_names
from planner.model.errors import (
    InvalidInputError,
    InvalidPlanError,
    NotApplicableError,
    PlannerError,
)
from planner.programs import Program
from planner.runtime.model.parameters import check_cover, named

_SETS = ("bucket_cap_mb", "bucket_cap_mb_list", "module")
_REPORT = "rebuilt_per_bucket_param_indices"


def as_ddp(model: nn.Module, program: Program, **options: Any) -> DistributedDataParallel:
    """Return the model under DDP, with the batches of a plan as buckets, in the plan's order.

    The batches of a `ShardProgram` are its pushes. `options` are DDP's, except the bucket sizes and
    ``find_unused_parameters``, with which DDP never rebuilds its buckets.

    Raises a `NotApplicableError` if the plan cuts a parameter, mixes data types, or has a batch
    whose parameters are not consecutive in DDP's order; an `InvalidPlanError` if it does not carry
    each trainable parameter once, or, in the first forward passes, if the buckets turn out
    differently; a `PlannerError` if this version of torch lacks the settings.
    """
    for name in _SETS:
        if name in options:
            raise InvalidInputError(name, "set by the plan: expected to be left out")
    if options.get("find_unused_parameters"):
        raise InvalidInputError(
            "find_unused_parameters", "expected False: otherwise DDP never rebuilds its buckets"
        )
    if "bucket_cap_mb_list" not in inspect.signature(DistributedDataParallel).parameters:
        raise PlannerError(
            f"DDP of torch {torch.__version__} has no bucket_cap_mb_list (known to work: 2.13)"
        )
    batches, caps = _in_ddp_order(program, model)
    caps_of: dict[str, Any] = {"bucket_cap_mb_list": caps}
    ddp = DistributedDataParallel(model, **options, **caps_of)
    _check_soon(ddp, batches)
    if list(batches) != sorted(batches):
        follow_order(ddp, program)
    return ddp


def ddp_bucket_caps(program: Program, model: nn.Module) -> list[float]:
    """Return the ``bucket_cap_mb_list`` with which DDP makes the batches of a plan.

    It holds from the second step on, if gradients become ready in the reverse order of the model's
    parameters, as DDP expects. Errors are those of `as_ddp`.
    """
    return _in_ddp_order(program, model)[1]


def ddp_buckets(ddp: DistributedDataParallel) -> tuple[tuple[str, ...], ...] | None:
    """Return the parameters of each bucket, in order; None until DDP reports rebuilt buckets."""
    data = ddp._get_ddp_logging_data()
    report = data.get(_REPORT)
    if not report:
        return None
    parameters, _ = ddp._build_params_for_reducer()
    names = {parameter: name for name, parameter in named(ddp.module)}
    return tuple(
        tuple(names[parameters[int(index)]] for index in bucket.split())
        for bucket in str(report).split(",")
    )


def whole_batches(
    program: Program, model: nn.Module
) -> tuple[tuple[tuple[str, ...], ...], dict[str, nn.Parameter]]:
    """Return the parameter names of each batch, checked against the model, and its parameters.

    Raises a `NotApplicableError` if the plan sends no gradients or cuts a parameter, and an
    `InvalidPlanError` if the plan does not carry each trainable parameter once.
    """
    batches = gradient_batches(program)
    names = whole_names(batches)
    parameters = {name: parameter for name, parameter in named(model) if parameter.requires_grad}
    check_cover(batches, parameters, "groups")
    return names, parameters


def _in_ddp_order(
    program: Program, model: nn.Module
) -> tuple[dict[int, tuple[str, ...]], list[float]]:
    """Return the batches with their numbers and their sizes (MiB), in the order of DDP's buckets.

    DDP fills its buckets in the reverse order of the model's parameters.
    """
    names, parameters = whole_batches(program, model)
    kinds = {parameter.dtype for parameter in parameters.values()}
    if len(kinds) > 1:
        raise NotApplicableError(
            "groups", f"a bucket of DDP has one type of number: got {', '.join(map(str, kinds))}"
        )
    order = [name for name, parameter in parameters.items() if parameter.numel()][::-1]
    place = {name: number for number, name in enumerate(order)}
    first = {number: min(map(place.__getitem__, group)) for number, group in enumerate(names)}
    chosen = sorted(first, key=first.__getitem__)
    for number in chosen:
        group = names[number]
        expected = order[first[number] : first[number] + len(group)]
        if set(expected) != set(group):
            unexpected = next(name for name in group if name not in expected)
            raise NotApplicableError(
                f"groups[{number}]",
                f"has {unexpected}, which is not among the next {len(group)} in DDP's order, from "
                f"{expected[0]} on: expected consecutive ones in the reverse of the order of the "
                "model's parameters, as planned with --for ddp",
            )
    sizes = [
        sum(parameters[name].numel() * parameters[name].element_size() for name in names[number])
        for number in chosen
    ]
    return {number: names[number] for number in chosen}, mebibytes(sizes)


def _check_soon(ddp: DistributedDataParallel, batches: Mapping[int, tuple[str, ...]]) -> None:
    """Compare DDP's buckets with the plan after the first forward pass that knows them."""

    def check(ddp: DistributedDataParallel, *_: Any) -> None:
        made = ddp_buckets(ddp)
        if made is None:
            return
        handle.remove()
        for bucket, (number, group) in zip(made, batches.items(), strict=False):
            if set(bucket) != set(group):
                got = ", ".join(sorted(bucket)[:3])
                raise InvalidPlanError(
                    f"groups[{number}]",
                    f"DDP's bucket has other parameters ({got}, …): gradients become ready in "
                    "another order than it expects",
                )

    handle = ddp.register_forward_hook(check)


# ---
# The communication hook that imposes an order.
#
# DDP passes every bucket of a step to the hook, which returns a future. Parameters identify a
# bucket's batch. DDP's first step, before it rebuilds its buckets, keeps DDP's order.


def follow_order(ddp: DistributedDataParallel, program: Program) -> None:
    """Let DDP send its buckets in a plan's order.

    The buckets have to be the plan's batches, by
    ``bucket_cap_mb_list=ddp_bucket_caps(program, model)``; `planner.runtime.ddp.as_ddp` does both.
    Every rank has to call it.

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
        If the plan does not carry each trainable parameter once.
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
    """State of a hook: the step, and the delayed buckets."""

    def __init__(self, numbers: Mapping[frozenset[int], int], group: Any) -> None:
        self._numbers = numbers
        self._group = group
        self._share = 1 / distributed.get_world_size(group)
        self._step = -1
        self._held: dict[int, tuple[Tensor, Future[Tensor]]] = {}
        self._next = 0

    def of(
        self,
        bucket: distributed.GradBucket,  # type: ignore[name-defined]
    ) -> Future[Tensor]:
        """Send a bucket, then the buckets delayed behind it; return the future of its sum."""
        index = bucket.index()
        if index == 0:
            self._step += 1
            self._next = 0
            self._held.clear()
        number = self._numbers.get(frozenset(map(id, bucket.parameters())))
        future = Future[Tensor]()
        if self._step == 0:
            self._send(bucket.buffer(), future)
            return future
        if number is None:
            raise InvalidPlanError(
                "groups",
                f"bucket {index} of DDP is no batch of the plan: make its buckets with "
                "bucket_cap_mb_list=planner.runtime.ddp.ddp_bucket_caps(program, model)",
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
