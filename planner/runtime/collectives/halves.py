"""Reduce-scatter and all-gather of matrices with one row per rank: the halves of an all-reduce.

Problem: Shard executors keep the data of a rank in its row of a message. A collective program has
chunks instead; a rank may own several, anywhere.
Method: Without a program the ranks exchange their rows directly. Large batches are cut
(`most_columns`) and two messages are in flight at a time (`in_turn`), so that links stay busy
during copies. For a program, rows are padded to equal chunks and copied to the chunks of their
ranks.
Complexity: One message per row. A program adds one copy of the message and a few elements per row:
for large rows less than 840 per chunk of a rank.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from math import lcm
from typing import Any

import torch
from torch import Tensor

from planner.model.errors import InvalidInputError
from planner.runtime.collectives.interpreter import PARTS, Interpreter
from planner.runtime.world.world import AT_ONCE, blaming

# ---
# Direct exchange of tensors between ranks.
#
# Problem: Gloo sends only what has been asked for, and a request queues behind sends to the same
# rank. If two ranks send before they ask, as in gloo's all-to-all, the transfers become sequential.
# Method: Post all receives before any send. Guarantee: Both directions of a link are used. Tensors
# between two ranks arrive in sending order. Complexity: One message per tensor.


def exchange(
    group: Any, received: Mapping[int, Tensor], sent: Mapping[int, Tensor]
) -> Callable[[], None]:
    """Begin to receive and send tensors, given by rank of the group; return a function that waits.

    Tensors are contiguous. A failed transfer raises a `PeerError`, at once or when waited for.
    """
    works = []
    for begin, parts in ((group.recv, received), (group.send, sent)):
        for peer, part in parts.items():
            with blaming(peer):
                works.append((peer, begin([part], peer, 0)))

    def wait() -> None:
        for peer, work in works:
            with blaming(peer):
                work.wait()

    return wait


LEAST_BYTES = 2**18
"""Batches up to this size are a single message."""

MOST_MESSAGES = 16
"""Limit for one batch: each message costs the processor as much as a small batch."""

_ANY_PARTS = lcm(*range(1, PARTS + 1))


def most_columns(columns: int, column_bytes: int, least_bytes: int = LEAST_BYTES) -> int:
    """Return the largest number of columns of a message, for a batch of the given columns."""
    messages = max(min(-(-columns * column_bytes // least_bytes), MOST_MESSAGES), 1)
    return max(-(-columns // messages), 1)


def in_turn(begun: Iterable[Callable[[], object]]) -> None:
    """Complete operations in order, beginning each one early: `AT_ONCE` are in flight at a time.

    Each item of the iterator begins an operation and is the function that waits for its end.
    """
    going: deque[Callable[[], object]] = deque()
    for end in begun:
        going.append(end)
        if len(going) == AT_ONCE:
            going.popleft()()
    while going:
        going.popleft()()


class Halves:
    """Direct exchange between all ranks of a process group.

    Each method begins an operation and returns the function that waits for it.
    """

    def __init__(self, group: Any) -> None:
        self._group = group

    def scatter(self, rows: Tensor, rank: int, room: Tensor) -> Callable[[], Tensor]:
        """Sum this rank's row over all ranks; `room` is a buffer of the same shape."""
        sent, received = rows.unbind(), room.unbind()
        others = _others(rank, len(sent))
        wait = exchange(
            self._group,
            {peer: received[peer] for peer in others},
            {peer: sent[peer] for peer in others},
        )

        def summed_up() -> Tensor:
            wait()
            # A fixed order of summation gives the same bits in every run.
            total = sent[rank]
            for peer in others:
                total = torch.add(total, received[peer], out=received[rank])
            return total

        return summed_up

    def gather(self, rows: Tensor, rank: int) -> Callable[[], object]:
        """Fill the rows of all other ranks with their data."""
        parts = rows.unbind()
        others = _others(rank, len(parts))
        return exchange(
            self._group, {peer: parts[peer] for peer in others}, dict.fromkeys(others, parts[rank])
        )


def _others(rank: int, ranks: int) -> list[int]:
    """Return all other ranks; each rank starts at another one."""
    return [(rank + ahead) % ranks for ahead in range(1, ranks)]


class ProgramHalves(Halves):
    """Both halves of a collective program; messages are cut into at least `depth` parts.

    An `InvalidInputError` is raised if the ranks do not own the same number of chunks.
    """

    def __init__(self, interpreter: Interpreter, depth: int = 1) -> None:
        self._interpreter, self._depth = interpreter, depth
        program = interpreter.program
        owned = Counter(map(program.owner, range(program.chunks)))
        if len({owned[rank] for rank in range(program.ranks)}) > 1:
            raise InvalidInputError(
                "plan", f"shards by {program.name}, which leaves some ranks without any"
            )

    def scatter(self, rows: Tensor, rank: int, room: Tensor) -> Callable[[], Tensor]:
        """Sum this rank's row over all ranks before returning; `room` is a buffer for it."""
        flat = self._flat(rows)
        for row, values in enumerate(rows):
            self._copy(flat, row, values, into=True)
        self._interpreter.reduce_scatter(flat, self._depth)
        self._copy(flat, rank, room[0], into=False)
        return lambda: room[0]

    def gather(self, rows: Tensor, rank: int) -> Callable[[], object]:
        """Fill the rows of all other ranks with their data before returning."""
        flat = self._flat(rows)
        self._copy(flat, rank, rows[rank], into=True)
        self._interpreter.all_gather(flat, self._depth)
        for row, values in enumerate(rows):
            if row != rank:
                self._copy(flat, row, values, into=False)
        return lambda: None

    def _flat(self, rows: Tensor) -> Tensor:
        ranks, width = rows.shape
        step = self._interpreter.program.chunks // ranks
        size = ranks * (width + step)
        if self._interpreter.parts(size, rows.element_size(), self._depth) > 1:
            step *= lcm(_ANY_PARTS, self._depth)
        return rows.new_zeros(ranks * -(-width // step) * step)

    def _copy(self, flat: Tensor, rank: int, row: Tensor, *, into: bool) -> None:
        """Copy a row into a rank's chunks, or out of them."""
        first = 0
        for place in self._interpreter.owned(flat, self._depth, rank=rank):
            values = row[first : first + len(place)]
            if into:
                place[: len(values)] = values
            else:
                values.copy_(place[: len(values)])
            first += len(place)
