"""Sums over all ranks: the interface executors use, and gloo's ring behind it.

Gloo always runs its ring for an all-reduce: 2(N-1)/N of the data over one NIC.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["AllReduce", "QueuedRing", "Ring"]


class AllReduce(Protocol):
    """Something that sums up tensors over all ranks.

    Every rank calls it for the same sizes in the same order, from one thread at a time.
    """

    @property
    def name(self) -> str:
        """What ranks compare before the first transfer."""
        ...

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        """Replace a one-dimensional, contiguous tensor by the sum of all ranks' tensors.

        `depth` is the number of chunks in flight. Raises a `RuntimeError` when a transfer fails.
        """
        ...


class Ring:
    """Gloo's ring among the ranks of a process group."""

    def __init__(self, group: Any) -> None:
        self._group = group

    @property
    def name(self) -> str:
        """What ranks compare before the first transfer."""
        return "ring"

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        """Sum up in place."""
        works = [self._begun(part) for part in flat.tensor_split(min(depth, flat.numel()))]
        for work in works:
            work.wait()

    def _begun(self, flat: Tensor) -> Any:
        # Without `distributed.all_reduce`, which takes as long as a small transfer.
        return self._group.allreduce([torch.view_as_real(flat) if flat.is_complex() else flat])


class QueuedRing(Ring):
    """The same in a group that does one thing after the other, as those of `World.new_line`."""

    def begin(self, flat: Tensor) -> Callable[[], object]:
        """Sum up in place once all before is summed up; return what waits for it."""
        wait: Callable[[], object] = self._begun(flat).wait
        return wait
