"""Sums over all ranks: the interface executors use, and gloo's ring behind it.

Gloo always runs its ring for an all-reduce: 2(N-1)/N of the data over one NIC. Between two steps of
one ring the network idles, the longer the busier the processors are; what is queued is therefore
cut, and two pieces are on their way at once.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["MOST_PIECES", "AllReduce", "QueuedRing", "Ring", "pieces_of"]

PIECE_BYTES = 2**20
"""A queued message of more is cut."""

MOST_PIECES = 8
"""Of one message: each costs the processor as much as a small message."""


def pieces_of(flat: Tensor) -> int:
    """Return into how many pieces a queued message is cut."""
    return max(min(-(-flat.numel() * flat.element_size() // PIECE_BYTES), MOST_PIECES), 1)


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
    """The same in a group of `World.new_line`, which begins one thing after the other.

    Two pieces share the network, so that a message ends by as much later as a piece of the next
    one takes: at most `PIECE_BYTES`, or an eighth of that.
    """

    def begin(self, flat: Tensor) -> Callable[[], object]:
        """Sum up in place behind all that was begun before; return what waits for it."""
        pieces = pieces_of(flat)
        if pieces == 1:
            wait: Callable[[], object] = self._begun(flat).wait
            return wait
        works = [self._begun(piece) for piece in flat.tensor_split(pieces)]

        def wait_for_all() -> None:
            for work in works:
                work.wait()

        return wait_for_all
