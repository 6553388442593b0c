"""BML's Algorithm 1 in closed form: any server's transfers without enumerating pieces.

Problem: in a BCube(n, k), N = n^k, thread t of every server sums the pieces (t, q), one for each
server q, in k steps and broadcasts the sums in k more; which pieces go where in each step?

Guarantee: equal to Algorithm 1 transfer by transfer. Without failures every NIC carries 2(N-1)/(kN)
of the gradient in each direction, the minimum, and no two threads share a link in a step.
Derivation: docs/bml.md, "The schedule"; detours: there, "Why detours are right".
Complexity: O(k²) before the first transfer, then O(1) for each of the 2k²(n-1) transfers of a
server. With f detours O(f) once more. Source: Wang et al., "BML", NeurIPS 2018, section 3.2,
Algorithm 1.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from planner.families.bml.problem import Transfer
from planner.families.collectives.layout import EvenLayout, Layout, RangedLayout
from planner.model.topologies import BCube

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FULL_WEIGHT = 64
"""The weight of an ordinary piece, where other pieces are lighter."""


class DetourPart(NamedTuple):
    """A slice of a blocked transfer, and the server that relays it."""

    level: int
    via: int
    offset: int
    length: int


class Detour(NamedTuple):
    """A transfer of the aggregation whose link is blocked, and its replacements."""

    thread: int
    step: int
    sender: int  # neighbour of `receiver` on level thread + step (mod k)
    receiver: int
    parts: tuple[DetourPart, ...]  # sent just before the step; none if all its pieces are left out


def slice_of(bcube: BCube, thread: int, step: int, server: int) -> tuple[int, int]:
    """Return offset and length of the pieces that agree with a server in digits t … t+w."""
    offset = 0
    for place in range(step + 1):
        offset = offset * bcube.n + bcube.digit(server, (thread + place) % bcube.k)
    length: int = bcube.n ** (bcube.k - 1 - step)
    return offset * length, length


_Parts = Mapping[tuple[int, int, int], list[tuple[int, ...]]]
"""Level, peer, offset and length of transfers, by server, thread and step."""


@dataclass(frozen=True)
class Schedule:
    """The schedule of all servers.

    Parameters
    ----------
    bcube : BCube
        The topology.
    dead : frozenset of int
        Failed servers.
    detours : tuple of Detour
        Every transfer between living servers, or to a failed one, whose link is blocked.
    left_out : tuple of int
        Pieces without elements, in order, as ``thread·N + piece``.
    light : tuple of (int, int)
        Disjoint ranges of smaller pieces, numbered in the same way, in order.
    light_weight : int
        Size of these pieces relative to the others, which have `FULL_WEIGHT`.
    rounds : int
        Number of parts of each piece; each part is one step behind the one before.
    """

    bcube: BCube
    dead: frozenset[int] = frozenset()
    detours: tuple[Detour, ...] = ()
    left_out: tuple[int, ...] = ()
    light: tuple[tuple[int, int], ...] = ()
    light_weight: int = FULL_WEIGHT
    rounds: int = 1

    @cached_property
    def _blocked(self) -> frozenset[tuple[int, int, int, int]]:
        """Thread, step, sender and receiver of every blocked transfer."""
        return frozenset(detour[:4] for detour in self.detours)

    @cached_property
    def _relayed(self) -> tuple[_Parts, _Parts]:
        """The detour parts that each server sends, and receives, for each thread and step."""
        leaving, arriving = defaultdict(list), defaultdict(list)
        for thread, step, sender, _, parts in self.detours:
            for level, via, *span in parts:
                leaving[sender, thread, step].append((level, via, *span))
                arriving[via, thread, step].append((level, sender, *span))
        return leaving, arriving

    @cached_property
    def blocked_rows(self) -> "NDArray[np.int64]":
        """Thread, step, sender and receiver of blocked transfers, shape (blocked, 4)."""
        import numpy as np

        rows = [detour[:4] for detour in self.detours]
        return np.array(rows, dtype=np.int64).reshape(-1, 4)

    @cached_property
    def part_rows(self) -> "NDArray[np.int64]":
        """Thread, step, sender, level, via, offset, length of parts, shape (parts, 7)."""
        import numpy as np

        rows = [(*detour[:3], *part) for detour in self.detours for part in detour.parts]
        return np.array(rows, dtype=np.int64).reshape(-1, 7)

    @cached_property
    def half_steps(self) -> tuple[int, ...]:
        """The steps w of Algorithm 1 that have detours just before them."""
        return tuple(sorted({detour.step for detour in self.detours if detour.parts}))

    @property
    def threads(self) -> int:
        """Threads of a server: k."""
        return self.bcube.k

    @property
    def pieces(self) -> int:
        """Pieces of a thread: N, one for each server."""
        return self.bcube.servers

    @property
    def changed(self) -> bool:
        """Whether anything differs from the schedule without failures."""
        return bool(self.dead or self.detours or self.left_out or self.light)

    @property
    def steps(self) -> int:
        """Steps of the aggregation: k, and one for each half step."""
        return self.bcube.k + len(self.half_steps)

    def step_of(self, w: int, *, half: bool = False) -> int:
        """Return the number of step w of Algorithm 1, or of the half step before it."""
        return w + sum(step < w or (step == w and not half) for step in self.half_steps)

    def owner(self, thread: int, piece: int) -> int:
        """Return q of piece (t, q): its digits are those of the number, digit t first."""
        bcube, server = self.bcube, 0
        for place in range(bcube.k):
            digit = piece // int(bcube.n ** (bcube.k - 1 - place)) % bcube.n
            server = bcube.with_digit(server, (thread + place) % bcube.k, digit)
        return server

    def layout(self, elements: int, element_bytes: int) -> Layout:
        """Return the layout of the pieces of a gradient with this number of elements."""
        if self.light and self.light_weight < FULL_WEIGHT:
            return RangedLayout(*self._ranges, elements, element_bytes)
        return EvenLayout(self.threads, self.pieces, self.left_out, elements, element_bytes)

    @cached_property
    def _ranges(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ranges of pieces of equal weight, as `RangedLayout` has them."""
        count = self.threads * self.pieces
        without = set(self.left_out)
        ends = {0, count, *(end for pair in self.light for end in pair)}
        ends.update(without, (piece + 1 for piece in without))
        firsts = sorted(ends)
        weights = []
        lights = deque(self.light)
        for first in firsts[:-1]:
            while lights and lights[0][1] <= first:
                lights.popleft()
            is_light = bool(lights) and lights[0][0] <= first
            weight = self.light_weight if is_light else FULL_WEIGHT
            weights.append(0 if first in without else weight)
        return tuple(firsts), tuple(weights)

    @property
    def total_weight(self) -> int:
        """The sum of all weights; a gradient with this many elements is cut without rounding."""
        firsts, weights = self._ranges
        return sum(map(mul, (b - a for a, b in pairwise(firsts)), weights))

    def transfers(self, server: int) -> Iterator[Transfer]:
        """Yield the transfers that a server sends, in the order of stages, steps and threads."""
        if server in self.dead:
            return
        n, k = self.bcube.n, self.bcube.k
        strides = [n**place for place in range(k)]
        digits = [server // stride % n for stride in strides]
        # Start of the slice of digits t … t+w, for each step and thread.
        starts = [[0] * k]
        for w in range(k):
            starts.append(
                [
                    start + digits[(t + w) % k] * strides[k - 1 - w]
                    for t, start in enumerate(starts[-1])
                ]
            )
        blocked, halves, (leaving, arriving) = self._blocked, self.half_steps, self._relayed
        number = 0
        for w in range(k):
            if w in halves:
                for t in range(k):
                    for part in leaving.get((server, t, w), ()):
                        yield Transfer(server, t, "aggregate", number, *part)
                number += 1
            length = strides[k - 1 - w]
            for t in range(k):
                level = (t + w) % k
                start, own, stride = starts[w][t], digits[level], strides[level]
                for value in chain(range(own + 1, n), range(own)):
                    peer = server + (value - own) * stride
                    if blocked and (t, w, server, peer) in blocked:
                        continue
                    offset = start + value * length
                    yield Transfer(server, t, "aggregate", number, level, peer, offset, length)
            number += 1
        number = 0
        for w in reversed(range(k)):
            length = strides[k - 1 - w]
            for t in range(k):
                level = (t + w) % k
                start, own, stride = starts[w + 1][t], digits[level], strides[level]
                for value in chain(range(own + 1, n), range(own)):
                    peer = server + (value - own) * stride
                    if (blocked and (t, w, peer, server) in blocked) or peer in self.dead:
                        continue
                    yield Transfer(server, t, "broadcast", number, level, peer, start, length)
            number += 1
            if w in halves:
                for t in range(k):
                    for part in arriving.get((server, t, w), ()):
                        yield Transfer(server, t, "broadcast", number, *part)
                number += 1

    def hops(self, thread: int, piece: int) -> "NDArray[np.int64]":
        """Return step, sender, receiver and level of a piece's transfers up, in O(k·N)."""
        import numpy as np

        rows = []
        n, k = self.bcube.n, self.bcube.k
        owner = self.owner(thread, piece)
        servers = np.arange(self.bcube.servers, dtype=np.int64)
        agreeing = ~np.isin(servers, list(self.dead)) if self.dead else servers >= 0
        for w in range(k):
            level = (thread + w) % k
            stride: int = n**level
            digit = self.bcube.digit(owner, level)
            differs = servers // stride % n != digit
            senders = servers[agreeing & differs]
            receivers = senders + (digit - senders // stride % n) * stride
            if w in self.half_steps:
                rows.append(self._half(thread, w, piece))
            if self.detours:
                open_ = ~np.isin(senders, self._barred(thread, w, owner))
                senders, receivers = senders[open_], receivers[open_]
            hops = np.broadcast_arrays(self.step_of(w), senders, receivers, level)
            rows.append(np.column_stack(hops))
            agreeing = agreeing & ~differs
        return np.concatenate(rows)

    def _barred(self, thread: int, w: int, owner: int) -> "NDArray[np.int64]":
        """Return the servers whose transfer of a piece (of `owner`) is blocked in step w."""
        rows = self.blocked_rows
        rows = rows[(rows[:, 0] == thread) & (rows[:, 1] == w)]
        for place in range(w + 1):
            level = (thread + place) % self.bcube.k
            stride: int = self.bcube.n**level
            rows = rows[rows[:, 3] // stride % self.bcube.n == self.bcube.digit(owner, level)]
        senders: NDArray[np.int64] = rows[:, 2]
        return senders

    def _half(self, thread: int, w: int, piece: int) -> "NDArray[np.int64]":
        """Return the rows of `hops` that replace the blocked transfers of a piece."""
        import numpy as np

        rows = self.part_rows
        rows = rows[(rows[:, 0] == thread) & (rows[:, 1] == w)]
        rows = rows[(rows[:, 5] <= piece) & (piece < rows[:, 5] + rows[:, 6])]
        step = np.full(len(rows), self.step_of(w, half=True))
        return np.column_stack([step, rows[:, [2, 4, 3]]])
