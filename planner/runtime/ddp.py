"""Imposes the batches of a plan on torch's DistributedDataParallel.

Problem. DDP all-reduces gradients in buckets of its own choice. Make them the batches of a plan, so
that a training script that uses DDP already follows the plan, without an executor of this package.

Method. Where batches are consecutive in the order in which DDP fills buckets,
``bucket_cap_mb_list`` says it all, and is public; the buckets are right once DDP has rebuilt them,
after the first step.
Otherwise `PlannedDDP` hands DDP its parameters in the order of the plan and lets it rebuild the
buckets at once, before the first step; no order in which gradients become ready changes them then.
Either way the first forward pass after which DDP reports its buckets compares them with the plan.

Guarantee. Buckets are the batches of the plan, all-reduced in its order; or an error. What is lost
of a plan: DDP waits for all buckets at the end of the backward pass, so that nothing is left to
overlap with the next forward pass; it cuts no parameter and has no depth.

Complexity. O(parameters), once.

Source. torch.nn.parallel.distributed and reducer.cpp of PyTorch 2.13; `PlannedDDP` relies on parts
of it that are not public, and says so if they have changed.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from planner.errors import InvalidInputError, InvalidPlanError, NotApplicableError, PlannerError
from planner.formats.batches import gradient_batches, whole_names
from planner.formats.ddp import mebibytes
from planner.programs import Program
from planner.runtime.model.parameters import check_cover, named

__all__ = ["PlannedDDP", "as_ddp", "ddp_bucket_caps", "ddp_buckets"]

_SETS = ("bucket_cap_mb", "bucket_cap_mb_list", "module")
_HELPERS = ("_build_params_for_reducer", "_ddp_init_helper", "_get_ddp_logging_data")
_OF_REDUCER = ("_push_all_rebuilt_params", "_rebuild_buckets")
_REPORT = "rebuilt_per_bucket_param_indices"


class PlannedDDP(DistributedDataParallel):
    """DDP whose buckets are given, in any order of parameters.

    Parameters
    ----------
    module : Module
        What to train.
    order : sequence of str
        Its trainable parameters, bucket by bucket.
    **options
        Of DDP; ``bucket_cap_mb_list`` has the sizes of the buckets.
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
        """Return the parameters in the order of the plan; what has no elements comes first."""
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        place = {name: number for number, name in enumerate(self._planned_order)}
        names = _names(self.module)
        rows = sorted(
            zip(parameters, sparse, strict=True), key=lambda row: place.get(names[row[0]], -1)
        )
        return [row[0] for row in rows], [row[1] for row in rows]

    def _ddp_init_helper(self, *arguments: Any, **options: Any) -> None:
        """Rebuild the buckets at once: the first ones are filled from the other end."""
        super()._ddp_init_helper(*arguments, **options)  # type: ignore[no-untyped-call]
        self.reducer._push_all_rebuilt_params()  # see the module's docstring
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

    The result is a `PlannedDDP` where that is needed, else plain DDP with limits; its first forward
    passes raise an `InvalidPlanError` if the buckets turn out to be others.

    Parameters
    ----------
    model : Module
        The same on all ranks.
    program : GradientProgram or ShardProgram
        Whose gradients to send; of a `ShardProgram`, the pushes.
    process_group : ProcessGroup, optional
        As for DDP.
    exact : bool, optional
        True: `PlannedDDP`, with the buckets from the first step on. False: plain DDP, with the
        buckets from the second step on. By default plain DDP if the batches are consecutive in the
        order DDP expects.
    **options
        Of DDP, but for the sizes of buckets and ``find_unused_parameters``, with which DDP never
        rebuilds its buckets.

    Raises
    ------
    NotApplicableError
        If the plan cuts a parameter, mixes types of numbers, or needs `PlannedDDP` where `exact` is
        False.
    InvalidPlanError
        If the plan does not have each trainable parameter once.
    PlannerError
        If this version of torch has no such settings.
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
    planned = exact
    if planned is None:
        try:
            _check_consecutive(names, model)
            planned = False
        except NotApplicableError:
            planned = True
    elif not planned:
        _check_consecutive(names, model)
    options |= {"process_group": process_group, "bucket_cap_mb_list": mebibytes(sizes)}
    made = (
        PlannedDDP(model, [name for group in names for name in group], **options)
        if planned
        else DistributedDataParallel(model, **options)
    )
    _check_soon(made, names)
    return made


def ddp_bucket_caps(program: Program, model: nn.Module) -> list[float]:
    """Return ``bucket_cap_mb_list`` with which plain DDP makes the batches of a plan.

    It does from the second step on, if gradients become ready in the reverse order of the model's
    parameters, as DDP expects.

    Raises
    ------
    NotApplicableError
        If batches are not consecutive in that order, cut a parameter or mix types of numbers.
    InvalidPlanError
        If the plan does not have each trainable parameter once.
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
    names = _names(ddp.module)
    return tuple(
        tuple(names[parameters[int(index)]] for index in bucket.split())
        for bucket in str(report).split(",")
    )


def _planned(program: Program, model: nn.Module) -> tuple[tuple[tuple[str, ...], ...], list[int]]:
    """Return names and sizes of the batches of a plan that fits a model."""
    batches = gradient_batches(program)
    names = whole_names(batches)
    parameters = {name: parameter for name, parameter in named(model) if parameter.requires_grad}
    check_cover(batches, parameters, "groups")
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
    """Check that batches are consecutive in the order in which DDP expects gradients."""
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


def _names(model: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in named(model)}
