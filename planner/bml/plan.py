"""Interface of all plans of gradient synchronisation.

The gradient is cut into pieces, numbered within each thread. In the `aggregate` stage a piece is
summed along a tree of servers towards its owner. In the `broadcast` stage it is sent back along the
same tree: broadcast step D - 1 - d reverses aggregation step d.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from planner.collectives.layout import Layout
from planner.topologies import BCube

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Hops", "Plan", "Stage", "Transfer"]

Stage = Literal["aggregate", "broadcast"]


class Transfer(NamedTuple):
    """One server sends a range of one thread's pieces to a neighbour.

    Attributes
    ----------
    server : int
        The sender.
    thread : int
        The thread whose pieces are sent.
    stage : str
        "aggregate": partial sums; "broadcast": sums over all servers.
    step : int
        From 0 in each stage.
    level : int
        Level of the link.
    peer : int
        The receiver.
    offset, length : int
        The range of pieces.
    """

    server: int
    thread: int
    stage: Stage
    step: int
    level: int
    peer: int
    offset: int
    length: int


class Hops(NamedTuple):
    """Transfers of one piece in one step of the aggregation, as arrays of equal length."""

    step: int
    senders: "NDArray[np.int64]"
    receivers: "NDArray[np.int64]"
    levels: "NDArray[np.int64]"


class Plan(Protocol):
    """Interface that the checker and pricing use."""

    @property
    def bcube(self) -> BCube:
        """The topology."""
        ...

    @property
    def threads(self) -> int:
        """Threads of a server, each with its own pieces."""
        ...

    @property
    def pieces(self) -> int:
        """Pieces of a thread, including those left out."""
        ...

    @property
    def left_out(self) -> tuple[int, ...]:
        """Pieces without elements, in order, as ``thread·pieces + piece``."""
        ...

    @property
    def steps(self) -> int:
        """Steps of the aggregation, D; the broadcast has equally many."""
        ...

    @property
    def rounds(self) -> int:
        """Number of parts of each piece; each part is one step behind the one before."""
        ...

    def owner(self, thread: int, piece: int) -> int:
        """Return the server that sums a piece."""
        ...

    def layout(self, elements: int, element_bytes: int) -> Layout:
        """Return the layout of the pieces of a gradient with this number of elements."""
        ...

    def transfers(self, server: int) -> Iterator[Transfer]:
        """Yield the transfers that a server sends, in the order of stages and steps."""
        ...

    def hops(self, thread: int, piece: int) -> Iterator[Hops]:
        """Yield the transfers of one piece in the aggregation, step by step."""
        ...
