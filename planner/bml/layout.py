"""Where each piece of the gradient starts.

The pieces that are in use, one numbering over all threads, share the elements evenly: the i-th of
M starts at element ``i·(E div M) + min(i, E mod M)``. Pieces that are left out have no elements, so
any range of pieces is one range of bytes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EvenLayout", "Layout", "WeightedLayout"]


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


@dataclass(frozen=True, slots=True)
class EvenLayout:
    """Pieces of equal size, give or take one element.

    Parameters
    ----------
    pieces : int
        How many are numbered.
    left_out : sequence of int
        Numbers of those without elements, in order.
    elements : int
        Elements there are.
    element_bytes : int
        Size of one.
    """

    pieces: int
    left_out: Sequence[int]
    elements: int
    element_bytes: int

    def start(self, piece: int) -> int:
        """Return where a piece starts, in bytes."""
        quotient, rest = divmod(self.elements, self.pieces - len(self.left_out))
        rank = piece - bisect_left(self.left_out, piece) if self.left_out else piece
        return (rank * quotient + min(rank, rest)) * self.element_bytes

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` pieces in a row, in bytes."""
        return self.start(first + count) - self.start(first)

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `start` of every one of `pieces`."""
        import numpy as np

        quotient, rest = divmod(self.elements, self.pieces - len(self.left_out))
        rank = pieces
        if self.left_out:
            rank = pieces - np.searchsorted(np.array(self.left_out, dtype=np.int64), pieces)
        return (rank * quotient + np.minimum(rank, rest)) * self.element_bytes


@dataclass(frozen=True, slots=True)
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

    def start(self, piece: int) -> int:
        """Return where a piece starts, in bytes."""
        share = self.ends[piece - 1] if piece else 0
        return int(share * self.elements // 1) * self.element_bytes

    def span(self, first: int, count: int) -> int:
        """Return the size of `count` pieces in a row, in bytes."""
        return self.start(first + count) - self.start(first)

    def starts(self, pieces: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `start` of every one of `pieces`."""
        import numpy as np

        return np.array([self.start(piece) for piece in pieces.tolist()], dtype=np.int64)
