"""Gradient plans as settings of torch's DistributedDataParallel.

Problem. DDP all-reduces gradients in buckets. ``bucket_cap_mb_list`` gives each bucket a limit, and
a bucket is closed as soon as its size reaches it; so limits that are the sizes of the plan's
batches give the plan's batches, if these are consecutive in the order in which DDP fills buckets.
That order is the one in which gradients became ready in the first step; DDP expects, and usually
sees, the reverse of the order in which the model lists its parameters.

Method. Write the sizes in MiB, exactly: a size divided by 2^20 is a float without rounding. Beside
them stand the names of each bucket's parameters, to compare with, and for
`planner.runtime.ddp.as_ddp`, which imposes any order.

Complexity. O(parameters).

Source. torch.nn.parallel.distributed and reducer.cpp of PyTorch 2.13.
"""

from collections.abc import Sequence
from typing import Any

from planner.formats.batches import whole_names
from planner.programs import Batch

__all__ = ["ddp_settings", "mebibytes"]

_NOTE = (
    "DistributedDataParallel(model, bucket_cap_mb_list=...) makes these buckets from the step "
    "after the first on, if gradients become ready in this order; planner.runtime.ddp.as_ddp "
    "makes them in any order, from the first step on, and checks them. DDP all-reduces in the "
    "order of the buckets and waits for all of them at the end of the backward pass."
)


def ddp_settings(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return limits for DDP's buckets and the names of their parameters, as plain values.

    ``bucket_cap_mb_list`` is None if the plan does not say how large batches are.

    Raises
    ------
    NotApplicableError
        If a parameter is cut.
    """
    names = whole_names(batches)
    sizes = [batch.size_bytes for batch in batches]
    known = [size for size in sizes if size is not None]
    caps = mebibytes(known) if len(known) == len(sizes) else None
    return {
        "bucket_cap_mb_list": caps,
        "buckets": [list(bucket) for bucket in names],
        "note": _NOTE,
    }


def mebibytes(sizes: Sequence[int]) -> list[float]:
    """Return sizes in bytes as MiB, from which DDP computes the same bytes again."""
    return [size / 2**20 for size in sizes]
