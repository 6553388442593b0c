"""Plans as settings of DistributedDataParallel, Horovod, DeepSpeed and Megatron-LM.

These tools know only whole parameters: they send a parameter in one piece, or cut it in their own
way. Plans that cut parameters or send them in parts are refused, with the group in question.
What each tool does with its settings is written at its function. Complexity: O(parameters), of
DeepSpeed and Megatron O(distinct batch sizes · parameters).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from planner.jsonio.ibatch import IbatchAnswer
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.validation import integer, shown
from planner.programs import (
    Answer,
    Batch,
    GradientProgram,
    Program,
    ShardProgram,
    SliceProgram,
    program_of,
    read_plan,
)
from planner.solving.bucketing import ddp_buckets, fitting_buckets, nearest_size


def gradients_of(*plans: bytes | Mapping[str, Any] | Answer) -> tuple[Batch, ...]:
    """Return the batches in which plans send gradients, with their sizes if known.

    A plan is one of `caramel` or `iteration`, or of `ibatch` for push; one for pull is ignored.
    """
    return gradient_batches(_about("push", plans))


def pulls_of(*plans: bytes | Mapping[str, Any] | Answer) -> tuple[Batch, ...]:
    """Return the batches in which plans pull parameters, with their sizes if known.

    A plan is one of `ibatch` for pull, or a sharded one of `iteration`; one for push is ignored.
    """
    program = _about("pull", plans)
    if isinstance(program, ShardProgram):
        return program.pulls
    raise NotApplicableError(
        "problem",
        "expected a plan of fsdp (planner plan --mode fsdp), of ibatch to pull, or a sharded one "
        "of iteration: no other pulls",
    )


def gradient_batches(program: Program) -> tuple[Batch, ...]:
    """Return the batches in which a program sends gradients."""
    if isinstance(program, GradientProgram):
        return program.batches
    if isinstance(program, ShardProgram):
        return program.pushes
    family = "bigdl" if isinstance(program, SliceProgram) else "fsdp"
    raise NotApplicableError(
        "problem",
        f"expected a plan of iteration, of caramel, or of ibatch to push, got one of {family}",
    )


def whole_names(batches: Iterable[Batch], path: str = "groups") -> tuple[tuple[str, ...], ...]:
    """Return the parameter names of each batch.

    A cut or repeated parameter, or a batch in parts, is a `NotApplicableError`.
    """
    first: dict[str, int] = {}
    names = []
    for number, batch in enumerate(batches):
        where = f"{path}[{number}]"
        if batch.depth != 1:
            raise NotApplicableError(
                where,
                f"is sent in {batch.depth} parts at once, which this tool cannot be told: plan "
                "without depths (a network measured with --depths 1, another method than caramel)",
            )
        for piece in batch.pieces:
            if piece.start or piece.stop is not None:
                raise NotApplicableError(
                    where, f"{shown(piece.parameter)} is cut: expected whole parameters"
                )
            if piece.parameter in first:
                raise NotApplicableError(
                    where,
                    f"{shown(piece.parameter)} is also in {path}[{first[piece.parameter]}]: "
                    "expected whole parameters",
                )
            first[piece.parameter] = number
        names.append(tuple(piece.parameter for piece in batch.pieces))
    return tuple(names)


def _about(direction: str, plans: Iterable[bytes | Mapping[str, Any] | Answer]) -> Program:
    """Return the program of plans; plans of `ibatch` have to include the direction."""
    answers = [read_plan(plan) for plan in plans]
    program = program_of(*answers)
    directions = [answer.direction for answer in answers if isinstance(answer, IbatchAnswer)]
    if directions and direction not in directions:
        raise InvalidInputError("direction", f"expected a plan of ibatch to {direction}")
    return program


# ---
# DistributedDataParallel: ``bucket_cap_mb_list`` gives each bucket a limit, and a bucket closes
# when its size reaches the limit. So the batch sizes as limits give the plan's batches, if these
# are consecutive in DDP's order: that in which gradients became ready in the first step, usually
# the reverse of the model's parameter order. Sizes are in MiB, exactly, as a size over 2^20 is a
# float without rounding. The names of each bucket's parameters are for
# `planner.runtime.ddp.as_ddp`, which imposes their order. Source: torch.nn.parallel.distributed and
# reducer.cpp of PyTorch 2.13.

_DDP_NOTE = (
    "DistributedDataParallel(model, bucket_cap_mb_list=...) makes these buckets from the step "
    "after the first on, if gradients become ready in this order; planner.runtime.ddp.as_ddp "
    "checks them, and sends them in the plan's order. DDP all-reduces in the "
    "order of the buckets and waits for all of them at the end of the backward pass."
)


def ddp_settings(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return DDP's bucket limits and the names of their parameters, as plain values.

    ``bucket_cap_mb_list`` is None if the plan has no batch sizes. A cut parameter is a
    `NotApplicableError`.
    """
    names = whole_names(batches)
    sizes = [batch.size_bytes for batch in batches if batch.size_bytes is not None]
    return {
        "bucket_cap_mb_list": mebibytes(sizes) if len(sizes) == len(names) else None,
        "buckets": [list(bucket) for bucket in names],
        "note": _DDP_NOTE,
    }


def mebibytes(sizes: Sequence[int]) -> list[float]:
    """Return sizes in MiB from which DDP computes the same bytes again."""
    return [size / 2**20 for size in sizes]


# ---
# Horovod fuses gradients that are ready in the same cycle, up to a threshold, so batches differ
# from step to step. ``DistributedOptimizer(groups=…)`` makes it send whole groups: one group per
# batch. A threshold below a group's size would cut the group, so it is the largest batch in whole
# MiB, plus 16 bytes per tensor that Horovod may add; an environment variable switches off fusion of
# groups. ``horovodrun --config-file`` reads YAML, and so JSON, and passes over unknown keys:
# "planner" holds the groups and the environment. The batches are the plan's; their order is not, as
# Horovod sends what is ready on all ranks. Source: horovod/common/controller.cc,
# horovod/torch/optimizer.py and horovod/runner/common/util/config_parser.py of Horovod 0.28.1.

_PADDING = 16
_CYCLE_MS = 1.0  # groups are complete when they are seen, so a longer cycle would only delay them

_HOROVOD_NOTE = (
    "horovodrun --config-file reads 'params'. Pass the groups as tensors: "
    "DistributedOptimizer(optimizer, named_parameters=..., groups=[[parameters[name] for name in "
    "group] for group in groups]), parameters = dict(model.named_parameters()), and set the "
    "environment on all ranks. Groups are sent as they become ready, in no planned order, and "
    "the optimiser's step waits for all of them."
)


def horovod_settings(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return a configuration for ``horovodrun --config-file``, as plain values.

    Plans with cut parameters or without batch sizes are a `NotApplicableError`.
    """
    names = whole_names(batches)
    padded = []
    for number, batch in enumerate(batches):
        if batch.size_bytes is None:
            raise NotApplicableError(
                f"groups[{number}]",
                "expected a plan with sizes, such as one of caramel or one with layer_bytes: "
                "Horovod cuts groups larger than its threshold",
            )
        padded.append(batch.size_bytes + _PADDING * len(names[number]))
    threshold = -(-max(padded) // 2**20)
    return {
        "params": {"fusion_threshold_mb": threshold, "cycle_time_ms": _CYCLE_MS},
        "planner": {
            "groups": [list(group) for group in names],
            "environment": {"HOROVOD_DISABLE_GROUP_FUSION": "1"},
            "note": _HOROVOD_NOTE,
        },
    }


# ---
# DeepSpeed has one size for all buckets: it adds gradients as they become ready, and reduces the
# bucket before the one that would exceed ``reduce_bucket_size`` (elements). Megatron goes through
# the model's parameters in reverse and closes a bucket once it has ``--ddp-bucket-size`` elements;
# a plan made for Megatron comes out exactly. Method: simulate the rule for the size of each planned
# batch; keep the size with which most batches come out exactly, then the one with the fewest
# buckets.
# Guarantee: none on the distance to the plan. The listed buckets are the tool's for parameters of
# one type, DeepSpeed's if gradients become ready in the given order, Megatron's without its
# distributed optimiser, which pads and starts others.
# Source: deepspeed/runtime/zero (stage_1_and_2.py, stage3.py, config.py) of DeepSpeed 0.19;
# megatron/core/distributed/param_and_grad_buffer.py of Megatron Core 0.19.

_DEEPSPEED_NOTE = (
    "DeepSpeed passes over 'planner'. Sizes are in elements. 'exact' are the planned batches that "
    "DeepSpeed's rule reproduces, by position in the plan; 'buckets' is all it makes, in order."
)
_MEGATRON_NOTE = (
    "'arguments' are those of the training script; sizes are in elements. 'exact' are the planned "
    "batches that come out exactly, by position in the plan; 'buckets' is all there will be."
)


def deepspeed_settings(
    batches: Sequence[Batch],
    parameter_bytes: Mapping[str, int],
    element_bytes: int = 4,
    order: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the configuration of ZeRO stage 2 nearest to a gradient plan, as plain values.

    `order` lists all parameters as their gradients become ready; by default in the order of the
    plan. A cut parameter is a `NotApplicableError`.
    """
    names = whole_names(batches)
    elements = _elements_of(names, parameter_bytes, element_bytes)
    filled = [name for group in names for name in group] if order is None else list(order)
    if sorted(filled) != sorted(elements):
        raise InvalidInputError("order", "expected each parameter of the plan once")
    size, made = _nearest(names, elements, filled, fitting_buckets)
    return {
        "zero_optimization": {
            "stage": 2,
            "contiguous_gradients": True,
            "overlap_comm": True,
            "reduce_bucket_size": size,
        },
        "planner": {**made, "note": _DEEPSPEED_NOTE},
    }


def megatron_settings(
    batches: Sequence[Batch], parameter_bytes: Mapping[str, int], element_bytes: int = 4
) -> dict[str, Any]:
    """Return the arguments of Megatron-LM nearest to a gradient plan, as plain values.

    `parameter_bytes` is in the model's order. A cut parameter is a `NotApplicableError`.
    """
    names = whole_names(batches)
    elements = _elements_of(names, parameter_bytes, element_bytes)
    filled = [name for name in parameter_bytes if name in elements][::-1]

    def rule(sizes: Sequence[int], limit: int) -> list[int]:
        return ddp_buckets(sizes, limit, limit)

    size, made = _nearest(names, elements, filled, rule)
    return {
        "arguments": ["--overlap-grad-reduce", "--ddp-bucket-size", str(size)],
        "planner": {**made, "note": _MEGATRON_NOTE},
    }


def _nearest(
    names: Sequence[Sequence[str]],
    elements: Mapping[str, int],
    filled: Sequence[str],
    rule: Callable[[Sequence[int], int], list[int]],
) -> tuple[int, dict[str, Any]]:
    """Return the bucket size nearest to the groups `names`, and the buckets it makes.

    The tool's `rule` fills buckets with the parameters `filled`, in this order.
    """
    size, counts = nearest_size(filled, [elements[name] for name in filled], names, rule)
    buckets = [filled[a:b] for a, b in pairwise(accumulate(counts, initial=0))]
    made = set(map(frozenset, buckets))
    exact = [number for number, group in enumerate(names) if frozenset(group) in made]
    return size, {"batches": len(names), "exact": exact, "buckets": buckets}


def _elements_of(
    groups: Sequence[Sequence[str]], parameter_bytes: Mapping[str, int], element_bytes: int
) -> dict[str, int]:
    """Return the number of elements of each parameter of these groups."""
    integer(element_bytes, "element_bytes", minimum=1)
    elements: dict[str, int] = {}
    for number, group in enumerate(groups):
        for name in group:
            if name not in parameter_bytes:
                raise InvalidPlanError(
                    f"groups[{number}]", f"expected the size of {shown(name)}, which is not given"
                )
            elements[name], rest = divmod(parameter_bytes[name], element_bytes)
            if rest:
                raise InvalidInputError(
                    name,
                    f"expected a multiple of {element_bytes} bytes (an element), got "
                    f"{parameter_bytes[name]}",
                )
    return elements
