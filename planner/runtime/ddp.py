"""Impose the batches of a plan on torch's DistributedDataParallel (DDP) as its buckets.

Method: Batches that are consecutive in DDP's filling order need only the public
``bucket_cap_mb_list``; buckets are right once DDP has rebuilt them, after the first step. Otherwise
`PlannedDDP` passes the parameters in the plan's order and rebuilds before the first step.
Guarantee: Buckets are the plan's batches in order, or an `InvalidPlanError` is raised: the first
forward pass that knows DDP's buckets compares them. DDP cuts no parameter, and waits for all
buckets at the end of the backward pass, so nothing overlaps with the next forward pass.
Complexity: O(parameters), once.
Source: DDP and reducer.cpp of PyTorch 2.13; `PlannedDDP` needs private parts and checks them.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
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

Names = tuple[tuple[str, ...], ...]
"""The names of each batch's parameters."""

_SETS = ("bucket_cap_mb", "bucket_cap_mb_list", "module")
_HELPERS = ("_build_params_for_reducer", "_ddp_init_helper", "_get_ddp_logging_data")
_OF_REDUCER = ("_push_all_rebuilt_params", "_rebuild_buckets")
_REPORT = "rebuilt_per_bucket_param_indices"


class PlannedDDP(DistributedDataParallel):
    """DDP with given buckets, for any order of parameters.

    `order` lists the trainable parameters bucket by bucket; ``bucket_cap_mb_list`` in `options`
    holds the sizes of the buckets.
    """

    def __init__(self, module: nn.Module, order: Sequence[str], **options: Any) -> None:
        missing = [name for name in _HELPERS if not hasattr(DistributedDataParallel, name)]
        reducer = getattr(torch.distributed, "Reducer", None)
        missing += [name for name in _OF_REDUCER if not hasattr(reducer, name)]
        if missing:
            raise PlannerError(
                f"torch {torch.__version__} has no {', '.join(missing)}: its DDP takes only "
                "batches of consecutive parameters (known to work: torch 2.13)"
            )
        self._planned_order = tuple(order)
        super().__init__(module, **options)

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        """Return the parameters in the plan's order, those without elements first."""
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        place = {name: number for number, name in enumerate(self._planned_order)}
        names = {parameter: name for name, parameter in named(self.module)}
        rows = sorted(
            zip(parameters, sparse, strict=True), key=lambda row: place.get(names[row[0]], -1)
        )
        return [row[0] for row in rows], [row[1] for row in rows]

    def _ddp_init_helper(self, *arguments: Any, **options: Any) -> None:
        """Rebuild the buckets at once: DDP fills its initial ones from the other end."""
        super()._ddp_init_helper(*arguments, **options)  # type: ignore[no-untyped-call]
        self.reducer._push_all_rebuilt_params()  # so that later steps change no bucket
        self.reducer._rebuild_buckets()


def as_ddp(
    model: nn.Module,
    program: Program,
    process_group: Any = None,
    *,
    exact: bool | None = None,
    **options: Any,
) -> DistributedDataParallel:
    """Return the model under DDP, with the batches of a plan as buckets.

    The result is a `PlannedDDP` where that is needed, else plain DDP with bucket sizes. Its first
    forward passes raise an `InvalidPlanError` if the buckets turn out differently.

    Parameters
    ----------
    model : Module
        The same on all ranks.
    program : GradientProgram or ShardProgram
        The program of the plan; of a `ShardProgram`, its pushes.
    process_group : ProcessGroup, optional
        As for DDP.
    exact : bool, optional
        True: `PlannedDDP`, with the buckets from the first step on. False: plain DDP, with the
        buckets from the second step on. Default: plain DDP if the batches are consecutive in DDP's
        order.
    **options
        Of DDP, except the bucket sizes and ``find_unused_parameters``, with which DDP never
        rebuilds its buckets.

    Raises
    ------
    NotApplicableError
        If the plan cuts a parameter, mixes data types, or needs `PlannedDDP` where `exact` is
        False.
    InvalidPlanError
        If the plan does not carry each trainable parameter once.
    PlannerError
        If this version of torch lacks the settings.
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
    names, sizes = _planned(program, model)
    planned = bool(exact)
    if not planned:
        try:
            _check_consecutive(names, model)
        except NotApplicableError:
            if exact is False:
                raise
            planned = True
    options |= {"process_group": process_group, "bucket_cap_mb_list": mebibytes(sizes)}
    made = (
        PlannedDDP(model, [name for group in names for name in group], **options)
        if planned
        else DistributedDataParallel(model, **options)
    )
    _check_soon(made, names)
    return made


def ddp_bucket_caps(program: Program, model: nn.Module) -> list[float]:
    """Return the ``bucket_cap_mb_list`` with which plain DDP makes the batches of a plan.

    It holds from the second step on, if gradients become ready in the reverse order of the model's
    parameters, as DDP expects. Raises a `NotApplicableError` for plans that need `PlannedDDP`.
    """
    names, sizes = _planned(program, model)
    _check_consecutive(names, model)
    return mebibytes(sizes)


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


def whole_batches(program: Program, model: nn.Module) -> tuple[Names, dict[str, nn.Parameter]]:
    """Return the parameter names of each batch, checked against the model, and its parameters.

    A plan that is not one of gradients, or cuts a parameter, is a `NotApplicableError`; one that
    does not carry each trainable parameter once is an `InvalidPlanError`.
    """
    batches = gradient_batches(program)
    names = whole_names(batches)
    parameters = {name: parameter for name, parameter in named(model) if parameter.requires_grad}
    check_cover(batches, parameters, "groups")
    return names, parameters


def _planned(program: Program, model: nn.Module) -> tuple[Names, list[int]]:
    """Return the parameter names and the size (bytes) of each batch."""
    names, parameters = whole_batches(program, model)
    kinds = {parameter.dtype for parameter in parameters.values()}
    if len(kinds) > 1:
        raise NotApplicableError(
            "groups", f"a bucket of DDP has one type of number: got {', '.join(map(str, kinds))}"
        )
    return names, [
        sum(parameters[name].numel() * parameters[name].element_size() for name in group)
        for group in names
    ]


def _check_consecutive(names: Sequence[Sequence[str]], model: nn.Module) -> None:
    """Check that batches are consecutive in DDP's order: the reverse of the model's parameters."""
    order = [
        name for name, parameter in named(model) if parameter.requires_grad and parameter.numel()
    ]
    order.reverse()
    reached = 0
    for number, group in enumerate(names):
        expected = order[reached : reached + len(group)]
        if set(expected) != set(group):
            unexpected = next(name for name in group if name not in expected)
            raise NotApplicableError(
                f"groups[{number}]",
                f"has {unexpected}, which is not among the next {len(group)} in DDP's order, from "
                f"{expected[0]} on: expected the reverse of the order of the model's parameters",
            )
        reached += len(group)


def _check_soon(ddp: DistributedDataParallel, names: Sequence[Sequence[str]]) -> None:
    """Compare DDP's buckets with the plan after the first forward pass that knows them."""

    def check(ddp: DistributedDataParallel, *_: Any) -> None:
        made = ddp_buckets(ddp)
        if made is None:
            return
        handle.remove()
        for number, group in enumerate(names):
            bucket = set(made[number]) if number < len(made) else set()
            if bucket != set(group):
                got = ", ".join(sorted(bucket)[:3]) or "none"
                raise InvalidPlanError(
                    f"groups[{number}]",
                    f"DDP's bucket has other parameters ({got}, …): gradients become ready in "
                    "another order than it expects; use as_ddp(..., exact=True)"
                    if not isinstance(ddp, PlannedDDP)
                    else f"DDP of torch {torch.__version__} made another bucket ({got}, …)",
                )

    handle = ddp.register_forward_hook(check)
