"""The interface of all-reduces, and gloo's ring.

Gloo's all-reduce is always a ring: 2(N-1)/N of the data over one NIC. The network idles between two
steps of a ring, longer on busy processors. Two pieces are therefore in flight at a time. They share
the network: a message whose last piece is in flight with the first of the next message ends up to
half of that piece late. Messages are cut into an even number of equal pieces, which end in pairs.
Small messages are not cut, since each piece costs the processor as much as a small message.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from torch import Tensor

from planner.runtime.world.world import AT_ONCE

WHOLE_BYTES = 2**21
"""Queued messages from this size on are cut. Steps with 17 messages of 1.1 MB take 1 to 6 % longer
if each is cut in two, and steps with messages of 2 to 3 MB as long either way."""

PIECE_BYTES = 2**22
"""Largest piece, unless there are `MOST_PIECES`."""

MOST_PIECES = 8
"""Limit for one message: each piece costs the processor as much as a small message."""


def pieces_of(flat: Tensor) -> int:
    """Return the number of pieces of a queued message: 1, or a multiple of `AT_ONCE`."""
    size = flat.numel() * flat.element_size()
    if size < WHOLE_BYTES:
        return 1
    return min(AT_ONCE * -(-size // (AT_ONCE * PIECE_BYTES)), MOST_PIECES)


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

    The group is a queue (`World.new_group`) that begins messages in order. With `polls` the waiting
    thread polls, for measurements: it keeps its processor awake as computation does, and waking one
    can take longer than a small message.
    """

    name = "ring"

    def __init__(self, group: Any, *, polls: bool = False) -> None:
        self._group = group
        self._polls = polls

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        """Replace a tensor by the sum of all ranks' tensors."""
        self._begun(flat, min(depth, flat.numel()))()

    def begin(self, flat: Tensor, filling: Iterable[int] = ()) -> Callable[[], object]:
        """Queue a sum in place after all earlier sums; return the function that waits for it.

        `filling` fills the tensor and yields how many elements are in place, again and again; each
        piece leaves as soon as it is full.
        """
        return self._begun(flat, pieces_of(flat), filling)

    def _begun(
        self, flat: Tensor, pieces: int, filling: Iterable[int] = ()
    ) -> Callable[[], object]:
        # Called directly: `distributed.all_reduce` takes as long as a small transfer.
        begin, works = self._group.allreduce, []
        left, end = deque(flat.tensor_split(pieces)), 0
        for filled in filling:
            while left and end + left[0].numel() <= filled:
                end += left[0].numel()
                works.append(begin([left.popleft()]))
        works += [begin([piece]) for piece in left]

        def wait() -> None:
            for work in works:
                while self._polls and not work.is_completed():
                    os.sched_yield()
                work.wait()

        return wait
