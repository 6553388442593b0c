"""The interface of all-reduces, and gloo's ring.

Gloo's all-reduce is always a ring: 2(N-1)/N of the data over one NIC. The network idles between two
steps of a ring, longer on busy processors. Queued messages are therefore cut, with two pieces in
flight at a time.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

PIECE_BYTES = 2**22
"""Queued messages above this size are cut. With pieces of 1 MiB steps take up to 3 % longer where
the processor computes meanwhile."""

MOST_PIECES = 8
"""Limit for one message: each piece costs the processor as much as a small message."""


def pieces_of(flat: Tensor) -> int:
    """Return the number of pieces of a queued message."""
    return max(min(-(-flat.numel() * flat.element_size() // PIECE_BYTES), MOST_PIECES), 1)


class AllReduce(Protocol):
    """An all-reduce of tensors over all ranks.

    Every rank calls it for the same sizes in the same order, from one thread at a time.
    """

    @property
    def name(self) -> str:
        """The name that ranks compare before the first transfer."""
        ...

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        """Replace a one-dimensional, contiguous tensor by the sum of all ranks' tensors.

        `depth` is the number of chunks in flight. Raises a `RuntimeError` when a transfer fails.
        """
        ...


class Ring:
    """Gloo's ring among the ranks of a process group.

    The group is a queue (`World.new_group`) that begins messages in order. Two pieces share the
    network, so a message is delayed by at most one piece of the next message: `PIECE_BYTES`, or an
    eighth of that message. With `polls` the waiting thread polls, for measurements: it keeps its
    processor awake as computation does, and waking one can take longer than a small message.
    """

    name = "ring"

    def __init__(self, group: Any, *, polls: bool = False) -> None:
        self._group = group
        self._polls = polls

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        """Replace a tensor by the sum of all ranks' tensors."""
        self._begun(flat, min(depth, flat.numel()))()

    def begin(self, flat: Tensor) -> Callable[[], object]:
        """Queue a sum in place after all earlier sums; return the function that waits for it."""
        return self._begun(flat, pieces_of(flat))

    def _begun(self, flat: Tensor, pieces: int) -> Callable[[], object]:
        # Called directly: `distributed.all_reduce` takes as long as a small transfer.
        works = [self._group.allreduce([piece]) for piece in flat.tensor_split(pieces)]

        def wait() -> None:
            for work in works:
                while self._polls and not work.is_completed():
                    os.sched_yield()
                work.wait()

        return wait
