"""Gradient plans as arguments of Megatron-LM.

Problem. Megatron's DistributedDataParallel goes through the model's parameters in reverse and
closes a bucket once it has ``--ddp-bucket-size`` elements: one size for all. Find the size that
comes closest to a plan, and say what comes of it.

Method. `planner.bucketing.nearest_size`. A plan made for Megatron comes out exactly.

Guarantee. None on how close it is. The buckets listed are those Megatron makes of parameters of one
type, without its distributed optimiser, which pads and starts others.

Complexity. O(distinct sizes of batches · parameters).

Source. megatron/core/distributed/param_and_grad_buffer.py of Megatron Core 0.19.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from planner.bucketing import ddp_buckets, nearest_size
from planner.errors import InvalidInputError
from planner.formats.batches import whole_names
from planner.formats.deepspeed import elements_of
from planner.programs import Batch

__all__ = ["megatron_settings"]

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

    Parameters
    ----------
    batches : sequence of Batch
        In the order of the plan.
    parameter_bytes : mapping
        Size of each parameter by name.
    element_bytes : int
        Size of an element of all of them.
    order : sequence of str, optional
        All parameters in the reverse of the model's order; by default in that of `parameter_bytes`.

    Raises
    ------
    InvalidInputError
        If sizes are missing or no multiple of an element, or `order` has other parameters.
    NotApplicableError
        If a parameter is cut.
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
