"""Chunk layouts: in which bytes of the gradient each piece lies.

Problem: pieces are numbered over all threads; a range of pieces is one range of bytes. Mostly the M
pieces in use share the E elements evenly: the j-th starts at element ⌈j·E/M⌉, and unused pieces are
empty. Around failures pieces have weights, and trees have shares of their own.
Guarantee: pieces are whole elements without gaps that hold all E elements; of equal shares none has
more than one element more than another. Exact, in Python's integers or in 64 bits that cannot
overflow.
Complexity: a start takes O(log r) for r unused pieces or ranges of equal weight. Many starts are
array operations, except where products exceed 64 bits. Source: own.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import lcm
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SQUARES = 2**31
"""Above this number of pieces, products of two piece numbers may exceed 64 bits."""


_WEIGHTS = 2**31
"""Above this sum of weights, products of two of them may exceed 64 bits."""


class Layout(ABC):
    """The start of each piece in a gradient, or in one layer of it."""

    @abstractmethod
    def start(self, piece: int) -> int:
        """Return the start of a piece (bytes); pieces are numbered over all threads."""

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` consecutive pieces (bytes)."""
        return self.start(first + count) - self.start(first)

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return the start of each of several pieces (bytes)."""
        import numpy as np

        return np.array([self.start(piece) for piece in pieces.tolist()], dtype=np.int64)


@dataclass(frozen=True)
class EvenLayout(Layout):
    """Pieces of equal size up to one element; the longer ones are spread evenly.

    So small layers do not all end up on a few servers. Threads share all elements in the same way,
    and the pieces of a thread those of the thread. `pieces` counts those of one thread; `left_out`
    lists the pieces without elements, sorted, numbered over all threads.
    """

    threads: int
    pieces: int
    left_out: Sequence[int]
    elements: int
    element_bytes: int

    @cached_property
    def _shares(self) -> tuple[tuple[int, int, int, int], ...]:
        """For each thread: pieces used before it and in it, its first element, its elements."""
        used = [self._in_use(thread * self.pieces) for thread in range(self.threads + 1)]
        firsts = [-(-self.elements * count // used[-1]) for count in used]
        return tuple(
            (before, after - before, first, last - first)
            for (before, after), (first, last) in zip(pairwise(used), pairwise(firsts), strict=True)
        )

    def start(self, piece: int) -> int:
        """Return the start of a piece (bytes)."""
        before, count, first, elements = self._shares[min(piece // self.pieces, self.threads - 1)]
        if count:
            first -= -(self._in_use(piece) - before) * elements // count
        return first * self.element_bytes

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return the start of each of several pieces (bytes)."""
        import numpy as np

        if self.pieces > _SQUARES:
            return super().starts(pieces)
        thread = np.minimum(pieces // self.pieces, self.threads - 1)
        before, count, first, elements = np.array(self._shares, dtype=np.int64).T[:, thread]
        rank = pieces - np.searchsorted(np.array(self.left_out, dtype=np.int64), pieces) - before
        # rank · elements may exceed 64 bits; rank · rest does not.
        quotient, rest = np.divmod(elements, np.maximum(count, 1))
        positions: NDArray[np.int64] = (
            first + rank * quotient - (-rank * rest // np.maximum(count, 1))
        )
        return positions * self.element_bytes

    def _in_use(self, piece: int) -> int:
        """Return the number of pieces before this one that have elements."""
        return piece - bisect_left(self.left_out, piece)


@dataclass(frozen=True)
class RangedLayout(Layout):
    """Pieces with weights: a piece starts at the weight before it, rounded down to an element.

    `firsts` holds the first piece of each range of equal weight, and at the end the number of
    pieces; `weights` the weight of each piece in a range.
    """

    firsts: tuple[int, ...]
    weights: tuple[int, ...]
    elements: int
    element_bytes: int

    @cached_property
    def _before(self) -> tuple[int, ...]:
        """The total weight before each range, and of all ranges."""
        counts = (stop - first for first, stop in pairwise(self.firsts))
        return (0, *accumulate(map(mul, counts, self.weights)))

    def start(self, piece: int) -> int:
        """Return the start of a piece (bytes)."""
        place = min(bisect_right(self.firsts, piece), len(self.weights)) - 1
        weight = self._before[place] + (piece - self.firsts[place]) * self.weights[place]
        return self.elements * weight // self._before[-1] * self.element_bytes

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return the start of each of several pieces (bytes)."""
        import numpy as np

        if self._before[-1] > _WEIGHTS:
            return super().starts(pieces)
        firsts, weights, before = (
            np.array(values, dtype=np.int64) for values in (self.firsts, self.weights, self._before)
        )
        place = np.minimum(np.searchsorted(firsts, pieces, side="right"), len(weights)) - 1
        weight = before[place] + (pieces - firsts[place]) * weights[place]
        # elements · weight may exceed 64 bits; rest · weight does not.
        quotient, rest = divmod(self.elements, self._before[-1])
        positions: NDArray[np.int64] = quotient * weight + rest * weight // self._before[-1]
        return positions * self.element_bytes


def by_shares(shares: Sequence[Fraction], elements: int, element_bytes: int) -> RangedLayout:
    """Return the layout of pieces with given shares of the elements, which sum to 1."""
    unit = lcm(*(share.denominator for share in shares))
    weights = (share.numerator * (unit // share.denominator) for share in shares)
    return RangedLayout(tuple(range(len(shares) + 1)), tuple(weights), elements, element_bytes)


@dataclass(frozen=True)
class GivenLayout(Layout):
    """Pieces with given starts (bytes); the last number is the end of the last piece."""

    edges: tuple[int, ...]

    def start(self, piece: int) -> int:
        """Return the start of a piece (bytes)."""
        return self.edges[piece]
