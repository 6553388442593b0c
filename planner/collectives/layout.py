"""Where each piece of the gradient starts.

Problem. Pieces have one numbering over all threads, and any range of them is one range of bytes. In
which bytes does each piece lie? Mostly those in use share the elements evenly: the j-th of M starts
at element ⌈j·E/M⌉, and those that are left out have none. Around failures some weigh less than
others, and trees have shares of their own.

Guarantee. Pieces are whole elements, follow each other without a gap and hold all E elements; of
equal shares none has more than one element more than another. All is exact, in Python's integers or
in 64 bits that cannot overflow.

Complexity. A start takes O(log r) for r pieces that are left out, or ranges of equal weight; O(1)
for given shares, after one pass over them. Many at once are array operations, but for given shares.
Source. Own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import lcm
from operator import mul
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EvenLayout", "KeptLayout", "Layout", "RangedLayout", "WeightedLayout"]

_SQUARES = 2**31
"""Squares of numbers up to this one have less than 64 bits."""


class Layout(Protocol):
    """Where pieces start in a gradient, or in one layer of it."""

    def start(self, piece: int) -> int:
        """Return where a piece starts, in bytes; pieces are numbered over all threads."""
        ...

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` pieces in a row, in bytes."""
        ...

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `start` of every one of `pieces`."""
        ...


@dataclass(frozen=True)
class EvenLayout:
    """Pieces of equal size, give or take one element, longer ones spread evenly among them.

    Small layers then do not all end up on a few servers: of m pieces in a row out of M with E
    elements, the first m have ⌈m·E/M⌉, and none has more. Threads share all elements in the same
    way, and the pieces of a thread those of the thread.

    Parameters
    ----------
    threads, pieces : int
        Threads, and pieces a thread numbers.
    left_out : sequence of int
        Numbers of those without elements, over all threads, in order.
    elements : int
        Elements there are.
    element_bytes : int
        Size of one.
    """

    threads: int
    pieces: int
    left_out: Sequence[int]
    elements: int
    element_bytes: int

    @cached_property
    def _shares(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of each thread: pieces in use before it, and of it; its first element, and how many."""
        used = [self._in_use(thread * self.pieces) for thread in range(self.threads + 1)]
        firsts = [-(-self.elements * count // used[-1]) for count in used]
        return tuple(
            (before, after - before, first, last - first)
            for (before, after), (first, last) in zip(pairwise(used), pairwise(firsts), strict=True)
        )

    def start(self, piece: int) -> int:
        """Return where a piece starts, in bytes."""
        before, count, first, elements = self._shares[min(piece // self.pieces, self.threads - 1)]
        if count:
            first -= -(self._in_use(piece) - before) * elements // count
        return first * self.element_bytes

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` pieces in a row, in bytes."""
        return self.start(first + count) - self.start(first)

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `start` of every one of `pieces`."""
        import numpy as np

        if self.pieces > _SQUARES:
            return np.array([self.start(piece) for piece in pieces.tolist()], dtype=np.int64)
        thread = np.minimum(pieces // self.pieces, self.threads - 1)
        before, count, first, elements = np.array(self._shares, dtype=np.int64).T[:, thread]
        rank = pieces - np.searchsorted(np.array(self.left_out, dtype=np.int64), pieces) - before
        # The product of rank and elements may be beyond 64 bits; that of rank and rest is not.
        quotient, rest = np.divmod(elements, np.maximum(count, 1))
        positions: NDArray[np.int64] = (
            first + rank * quotient - (-rank * rest // np.maximum(count, 1))
        )
        return positions * self.element_bytes

    def _in_use(self, piece: int) -> int:
        """Return how many pieces before this one have elements."""
        return piece - bisect_left(self.left_out, piece)


@dataclass(frozen=True)
class RangedLayout:
    """Pieces with weights, given by ranges: a piece starts at the weight before it, rounded down.

    Parameters
    ----------
    firsts : tuple of int
        The first piece of each range, in order, 0 first; and the number of pieces.
    weights : tuple of int
        The weight of each piece in a range.
    elements : int
        Elements there are.
    element_bytes : int
        Size of one.
    """

    firsts: tuple[int, ...]
    weights: tuple[int, ...]
    elements: int
    element_bytes: int

    @cached_property
    def _before(self) -> tuple[int, ...]:
        """The weight before each range, and of all."""
        counts = (stop - first for first, stop in pairwise(self.firsts))
        return (0, *accumulate(map(mul, counts, self.weights)))

    def start(self, piece: int) -> int:
        """Return where a piece starts, in bytes."""
        place = min(bisect_right(self.firsts, piece), len(self.weights)) - 1
        weight = self._before[place] + (piece - self.firsts[place]) * self.weights[place]
        return self.elements * weight // self._before[-1] * self.element_bytes

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` pieces in a row, in bytes."""
        return self.start(first + count) - self.start(first)

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `start` of every one of `pieces`."""
        import numpy as np

        firsts, weights, before = (
            np.array(values, dtype=np.int64) for values in (self.firsts, self.weights, self._before)
        )
        place = np.minimum(np.searchsorted(firsts, pieces, side="right"), len(weights)) - 1
        weight = before[place] + (pieces - firsts[place]) * weights[place]
        # The product may be beyond 64 bits; all weights together are at most 2^27.
        quotient, rest = divmod(self.elements, self._before[-1])
        positions: NDArray[np.int64] = quotient * weight + rest * weight // self._before[-1]
        return positions * self.element_bytes


@dataclass(frozen=True)
class WeightedLayout:
    """Pieces of given shares of the elements, each start rounded down to a whole element.

    Parameters
    ----------
    ends : tuple of Fraction
        The sum of the shares up to and with each piece; the last one is 1.
    elements : int
        Elements there are.
    element_bytes : int
        Size of one.
    """

    ends: tuple[Fraction, ...]
    elements: int
    element_bytes: int

    @cached_property
    def _before(self) -> tuple[int, tuple[int, ...]]:
        """A common denominator of the sums, and the numerator before each piece and after all."""
        unit = lcm(*(end.denominator for end in self.ends))
        return unit, (0, *(end.numerator * (unit // end.denominator) for end in self.ends))

    def start(self, piece: int) -> int:
        """Return where a piece starts, in bytes."""
        unit, before = self._before
        return before[piece] * self.elements // unit * self.element_bytes

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` pieces in a row, in bytes."""
        return self.start(first + count) - self.start(first)

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `start` of every one of `pieces`."""
        import numpy as np

        return np.array([self.start(piece) for piece in pieces.tolist()], dtype=np.int64)


@dataclass(frozen=True)
class KeptLayout:
    """Another layout without the pieces that have no elements.

    Parameters
    ----------
    layout : Layout
        Of all pieces.
    kept : tuple of int
        The pieces that are left, in order, and the number of all pieces.
    """

    layout: Layout
    kept: tuple[int, ...]

    def start(self, piece: int) -> int:
        """Return where a piece starts, in bytes."""
        return self.layout.start(self.kept[piece])

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` pieces in a row, in bytes."""
        return self.start(first + count) - self.start(first)

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `start` of every one of `pieces`."""
        import numpy as np

        return self.layout.starts(np.array(self.kept, dtype=np.int64)[pieces])
