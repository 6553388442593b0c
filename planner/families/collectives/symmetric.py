"""Symmetric programs: every rank sends what rank 0 sends, shifted to that rank.

Problem: a program of 65,536 ranks has billions of messages. Generate each rank's messages in closed
form, and verify all ranks together.
Method: ranks are numbers with mixed radices. Adding digits modulo their radices is a group that
takes every rank to every other one, and a symmetric program is invariant under it. It is given by
hops relative to the sender. A lane has one chunk per rank, its owner; the chunks of a hop are those
whose owners agree with some rank in the first digits of the lane's order, which is one range.
Guarantee: a fact about the chunks of rank 0, one per lane, holds for all: the shifts map them
there. So `planner.families.collectives.checker` proves the program by following these chunks only.
Complexity: O(digits) per message; `way` O(N) per lane. Source: own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Self

from planner.families.collectives.layout import EvenLayout, Layout
from planner.families.collectives.program import Kind, Message, Program

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Hop(NamedTuple):
    """A message that every rank sends once, relative to the sender.

    `shift` and `anchor` are the digits to add to the sender's to get the receiver, and the anchor
    rank. The message carries the chunks whose owners agree with the anchor in the first `depth`
    digits of the lane's order; `run` consecutive values of the last of these digits, from the
    anchor's on and cyclic, count as agreeing: at most two ranges of chunks, and a message for each.
    `adds` says whether the receiver adds.
    """

    step: int
    lane: int
    shift: tuple[int, ...]
    anchor: tuple[int, ...]
    depth: int
    adds: bool
    run: int = 1


class Way(NamedTuple):
    """All messages that carry one chunk, as arrays of shape (messages,).

    `owner` is the rank that the chunk is summed up on; `adds` says whether the receiver adds.
    """

    owner: int
    steps: "NDArray[np.int64]"
    senders: "NDArray[np.int64]"
    receivers: "NDArray[np.int64]"
    adds: "NDArray[np.bool_]"


def one_link(sender: int, receiver: int, lane: int) -> int:  # signature of all wirings
    """Return the NIC of ranks that have one NIC."""
    return 0


def lane_link(sender: int, receiver: int, lane: int) -> int:  # signature of all wirings
    """Return the NIC of ranks that have one NIC for each lane."""
    return lane


@dataclass(frozen=True)
class SymmetricProgram(Program):
    """A program given by its hops.

    `radices` are those of the digits of a rank, the least significant first. `orders` holds for
    each lane the digits of its chunk numbers, the most significant first. `wire` returns the NIC
    for a sender, a receiver and a lane. `places` holds for each lane the rank of each number; by
    default the number itself.
    """

    name: str
    radices: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    hops: tuple[Hop, ...]
    scatter_steps: int
    steps: int
    links: int = 1
    wire: Callable[[int, int, int], int] = one_link
    places: tuple[Sequence[int], ...] = ()
    kind: Kind = "all_reduce"

    def __post_init__(self) -> None:
        ranks, lanes = prod(self.radices), len(self.orders)
        self._derive(ranks=ranks, lanes=lanes, chunks=lanes * ranks)  # a chunk per rank and lane

    @cached_property
    def exclusive(self) -> bool:
        """Whether no link carries two messages in a step: no hop has a run, lanes share no link."""
        return len(self.places) < 2 and all(hop.run == 1 for hop in self.hops)

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return tuple(prod(self.radices[:place]) for place in range(len(self.radices)))

    @cached_property
    def _scales(self) -> tuple[tuple[int, ...], ...]:
        """For each lane, the weight of each place of its order in a chunk's number."""
        return tuple(
            tuple(
                prod(self.radices[digit] for digit in order[place + 1 :])
                for place in range(len(order))
            )
            for order in self.orders
        )

    @cached_property
    def _numbers(self) -> tuple[dict[int, int], ...]:
        """For each lane, the number of each rank."""
        return tuple({rank: place for place, rank in enumerate(places)} for places in self.places)

    def layout(self, elements: int, element_bytes: int = 1) -> Layout:
        """Return the layout of the chunks: lanes share the elements, and chunks a lane, evenly."""
        return EvenLayout(self.lanes, self.ranks, (), elements, element_bytes)

    def owner(self, chunk: int) -> int:
        """Return the rank that a chunk is summed up on."""
        lane, number = divmod(chunk, self.ranks)
        owner = 0
        for digit, scale in zip(self.orders[lane], self._scales[lane], strict=True):
            owner += number // scale % self.radices[digit] * self._strides[digit]
        return self.rank(owner, lane)

    def half(self, kind: Kind) -> Self:
        """Return one half of the all-reduce."""
        return replace(self, kind=kind)

    def _of(self, rank: int, *, sent: bool) -> Iterator[Message]:
        radices, strides = self.radices, self._strides
        numbers = [of[rank] for of in self._numbers] if self.places else [rank] * self.lanes
        sizes = tuple(zip(strides, radices, strict=True))
        own = [[number // stride % radix for stride, radix in sizes] for number in numbers]
        sign = 1 if sent else -1
        for hop in self.hops:
            if not self._is_of_kind(hop.step):
                continue
            lane, depth = hop.lane, hop.depth
            digits, order, scales = own[lane], self.orders[lane], self._scales[lane]
            peer = numbers[lane]
            for digit, more in enumerate(hop.shift):
                if more:
                    value = digits[digit]
                    peer += ((value + sign * more) % radices[digit] - value) * strides[digit]
            first = lane * self.ranks
            turned, radix = 0, 1  # value and radix of the last digit
            size = scales[depth - 1] if depth else self.ranks
            for digit, scale in zip(order[:depth], scales, strict=False):
                more = hop.anchor[digit] - (0 if sent else hop.shift[digit])
                radix = radices[digit]
                turned = (digits[digit] + more) % radix
                first += turned * scale
            start, whole = first - turned * size, first + hop.run * size
            end = start + radix * size
            ends = rank, self.rank(peer, lane)
            sender, receiver = ends if sent else reversed(ends)
            link = self.wire(sender, receiver, lane)
            message = Message(
                hop.step, lane, sender, receiver, link, first, min(whole, end), hop.adds
            )
            yield message
            if whole > end:
                yield message._replace(first=start, stop=start + whole - end)

    def rank(self, number: int, lane: int) -> int:
        """Return the rank of a number in a lane."""
        return self.places[lane][number] if self.places else number

    def _singles(self, hop: Hop) -> Iterator[Hop]:
        """Yield one hop for each value of a run."""
        for more in range(hop.run):
            anchor = [*hop.anchor]
            if more:
                anchor[self.orders[hop.lane][hop.depth - 1]] += more
            yield hop._replace(anchor=tuple(anchor), run=1)

    def way(self, lane: int) -> Way:
        """Return all messages that carry the chunk of number 0 in a lane, by numbers."""
        import numpy as np

        hops = [
            single
            for hop in self.hops
            if hop.lane == lane and self._is_of_kind(hop.step)
            for single in self._singles(hop)
        ]
        radices, strides = (np.array(row, dtype=np.int64) for row in (self.radices, self._strides))
        shape = len(hops), len(radices)
        anchors, shifts = (
            np.array(rows, dtype=np.int64).reshape(shape)
            for rows in ([hop.anchor for hop in hops], [hop.shift for hop in hops])
        )
        # The owner, 0, agrees with sender + anchor in the first digits, which fixes them. The
        # other digits are free: the loop below enumerates their values.
        depths = np.array([hop.depth for hop in hops], dtype=np.int64)
        fixed = np.argsort(self.orders[lane]) < depths[:, None]
        start = np.where(fixed, -anchors % radices, 0)
        rows = np.arange(len(hops))
        for digit, radix in enumerate(self.radices):
            free = ~fixed[rows, digit] if radix > 1 else np.zeros(len(rows), dtype=bool)
            times = np.where(free, radix, 1)
            rows, start = np.repeat(rows, times), np.repeat(start, times, axis=0)
            # 0, 1, … within each repeated row
            count = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
            start[:, digit] += count
        return Way(
            0,
            np.array([hop.step for hop in hops], dtype=np.int64)[rows],
            start @ strides,
            (start + shifts[rows]) % radices @ strides,
            np.array([hop.adds for hop in hops], dtype=bool)[rows],
        )
