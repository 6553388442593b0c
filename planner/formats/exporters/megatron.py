"""Gradient plans as arguments of Megatron-LM.

Problem: Megatron's DistributedDataParallel goes through the model's parameters in reverse and
closes a bucket once it has ``--ddp-bucket-size`` elements. Find the size closest to a plan
(`planner.solving.bucketing.nearest_size`). A plan made for Megatron comes out exactly.
Guarantee: none on the distance to the plan. The listed buckets are Megatron's for parameters of one
type, without its distributed optimiser, which pads and starts others.
Complexity: O(distinct batch sizes · parameters).
Source: megatron/core/distributed/param_and_grad_buffer.py of Megatron Core 0.19.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from planner.formats.exporters.batches import whole_names
from planner.formats.exporters.deepspeed import elements_of
from planner.model.errors import InvalidInputError
from planner.programs import Batch
from planner.solving.bucketing import ddp_buckets, nearest_size

_NOTE = (
    "'arguments' are those of the training script; sizes are in elements. 'exact' are the planned "
    "batches that come out exactly, by position in the plan; 'buckets' is all there will be."
)


def megatron_settings(
    batches: Sequence[Batch],
    parameter_bytes: Mapping[str, int],
    element_bytes: int = 4,
    order: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the arguments nearest to a gradient plan, as plain values.

    `order` lists all parameters in the reverse of the model's order; by default the reverse of
    `parameter_bytes`. A cut parameter is a `NotApplicableError`.
    """
    names = whole_names(batches)
    elements = elements_of(names, parameter_bytes, element_bytes)
    model = [name for name in parameter_bytes if name in elements]
    filled = model[::-1] if order is None else list(order)
    if sorted(filled) != sorted(elements):
        raise InvalidInputError("order", "expected each parameter of the plan once")
    sizes = [elements[name] for name in filled]

    def rule(sizes: Sequence[int], limit: int) -> list[int]:
        return ddp_buckets(sizes, limit, limit)

    size, counts = nearest_size(filled, sizes, names, rule)
    buckets = [filled[a:b] for a, b in pairwise(accumulate(counts, initial=0))]
    made = set(map(frozenset, buckets))
    return {
        "arguments": ["--overlap-grad-reduce", "--ddp-bucket-size", str(size)],
        "planner": {
            "batches": len(names),
            "exact": [place for place, group in enumerate(names) if frozenset(group) in made],
            "buckets": buckets,
            "note": _NOTE,
        },
    }
