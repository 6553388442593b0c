"""Plans as settings of DeepSpeed's ZeRO.

Problem: DeepSpeed has one size for all buckets: it adds gradients as they become ready, and reduces
the bucket before the one that would exceed ``reduce_bucket_size`` (elements). Find the size closest
to a plan. Method: simulate the rule for the size of each planned batch; keep the size with which
most batches come out exactly, then the one with the fewest buckets. For pull plans, stage 3 gathers
a module when it is called, plus about ``stage3_prefetch_bucket_size`` elements of the next ones;
that is set to the largest planned batch, and no batch is reproduced.
Guarantee: none on the distance to the plan. The listed buckets are DeepSpeed's if gradients become
ready in the given order and have one type.
Complexity: O(distinct batch sizes · parameters). Source: deepspeed/runtime/zero (stage_1_and_2.py,
stage3.py, config.py) of DeepSpeed 0.19.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from planner.formats.exporters.batches import whole_names
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.model.validation import integer, shown
from planner.programs import Batch
from planner.solving.bucketing import fitting_buckets, nearest_size

_NOTE = (
    "DeepSpeed passes over 'planner'. Sizes are in elements. 'exact' are the planned batches that "
    "DeepSpeed's rule reproduces, by position in the plan; 'buckets' is all it makes, in order."
)
_PULL_NOTE = (
    "DeepSpeed passes over 'planner'. Sizes are in elements. Stage 3 gathers module by module and "
    "has no setting for what travels together: no planned batch is reproduced."
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
    elements = elements_of(names, parameter_bytes, element_bytes)
    filled = [name for group in names for name in group] if order is None else list(order)
    if sorted(filled) != sorted(elements):
        raise InvalidInputError("order", "expected each parameter of the plan once")
    sizes = [elements[name] for name in filled]
    limit, counts = nearest_size(filled, sizes, names, fitting_buckets)
    ends = accumulate(counts, initial=0)
    buckets = [filled[start:stop] for start, stop in pairwise(ends)]
    made = set(map(frozenset, buckets))
    exact = [number for number, group in enumerate(names) if frozenset(group) in made]
    return {
        "zero_optimization": {
            "stage": 2,
            "contiguous_gradients": True,
            "overlap_comm": True,
            "reduce_bucket_size": limit,
        },
        "planner": {
            "batches": len(names),
            "exact": exact,
            "buckets": buckets,
            "note": _NOTE,
        },
    }


def deepspeed_pull_settings(batches: Sequence[Batch], element_bytes: int = 4) -> dict[str, Any]:
    """Return the configuration of ZeRO stage 3 nearest to a pull plan, as plain values."""
    largest = 0
    for number, batch in enumerate(batches):
        if batch.size_bytes is None:
            raise NotApplicableError(
                f"batches[{number}]", "expected a plan with layer_bytes: sizes are what is set"
            )
        largest = max(largest, _divided(batch.size_bytes, element_bytes, f"batches[{number}]"))
    return {
        "zero_optimization": {
            "stage": 3,
            "contiguous_gradients": True,
            "overlap_comm": True,
            "reduce_bucket_size": largest,
            "stage3_prefetch_bucket_size": largest,
            "stage3_param_persistence_threshold": 0,
        },
        "planner": {"batches": len(batches), "exact": [], "note": _PULL_NOTE},
    }


def elements_of(
    groups: Sequence[Sequence[str]], parameter_bytes: Mapping[str, int], element_bytes: int
) -> dict[str, int]:
    """Return the number of elements of each parameter of these groups."""
    elements = {}
    for number, group in enumerate(groups):
        for name in group:
            if name not in parameter_bytes:
                raise InvalidPlanError(
                    f"groups[{number}]", f"expected the size of {shown(name)}, which is not given"
                )
            elements[name] = _divided(parameter_bytes[name], element_bytes, name)
    return elements


def _divided(size: int, element_bytes: int, path: str) -> int:
    integer(element_bytes, "element_bytes", minimum=1)
    if size % element_bytes:
        raise InvalidInputError(
            path, f"expected a multiple of {element_bytes} bytes (an element), got {size}"
        )
    return size // element_bytes
