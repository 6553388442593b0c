"""Sums over all ranks: the interface executors use, and gloo's ring behind it.

Gloo always runs its ring for an all-reduce: 2(N-1)/N of the data over one NIC.
"""

from typing import Any, Protocol

from torch import Tensor, distributed

__all__ = ["AllReduce", "Ring"]


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
        works = [
            distributed.all_reduce(chunk, group=self._group, async_op=True)
            for chunk in flat.tensor_split(min(depth, flat.numel()))
        ]
        for work in works:
            work.wait()
