"""Gradient plans as settings of torch's DistributedDataParallel.

``bucket_cap_mb_list`` gives each bucket a limit, and a bucket closes when its size reaches the
limit. So the batch sizes as limits give the plan's batches, if these are consecutive in DDP's
order: that in which gradients became ready in the first step, usually the reverse of the model's
parameter order. Sizes are in MiB, exactly, as a size over 2^20 is a float without rounding. The
names of each bucket's parameters are for `planner.runtime.ddp.as_ddp`, which imposes any order.

Complexity: O(parameters).
Source: torch.nn.parallel.distributed and reducer.cpp of PyTorch 2.13.
"""

from collections.abc import Sequence
from typing import Any

from planner.formats.exporters.batches import whole_names
from planner.programs import Batch

_NOTE = (
    "DistributedDataParallel(model, bucket_cap_mb_list=...) makes these buckets from the step "
    "after the first on, if gradients become ready in this order; planner.runtime.ddp.as_ddp "
    "makes them in any order, from the first step on, and checks them. DDP all-reduces in the "
    "order of the buckets and waits for all of them at the end of the backward pass."
)


def ddp_settings(batches: Sequence[Batch]) -> dict[str, Any]:
    """Return DDP's bucket limits and the names of their parameters, as plain values.

    ``bucket_cap_mb_list`` is None if the plan has no batch sizes. A cut parameter is a
    `NotApplicableError`.
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
    """Return sizes in MiB from which DDP computes the same bytes again."""
    return [size / 2**20 for size in sizes]
