"""What every plan of a gradient synchronisation says, whoever made it.

The gradient is cut into pieces, numbered within each thread. A piece is summed up along a tree of
servers towards its owner in the `aggregate` stage, and handed back along the same tree in the
`broadcast` stage: the transfer of aggregation step d is undone by one in broadcast step D - 1 - d.
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
        Who sends.
    thread : int
        Whose pieces.
    stage : str
        "aggregate": what has been summed up so far; "broadcast": the sum of all servers.
    step : int
        From 0 in each stage.
    level : int
        Level of the link.
    peer : int
        Who receives.
    offset, length : int
        The pieces.
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
    """Who sends one piece to whom in one step of the aggregation, all servers at once.

    Attributes
    ----------
    step : int
        The aggregation step.
    senders, receivers, levels : ndarray of int64, shape (transfers,)
        One element a transfer.
    """

    step: int
    senders: "NDArray[np.int64]"
    receivers: "NDArray[np.int64]"
    levels: "NDArray[np.int64]"


class Plan(Protocol):
    """What the checker and the price ask of a plan."""

    @property
    def bcube(self) -> BCube:
        """The topology."""
        ...

    @property
    def threads(self) -> int:
        """Threads a server, each with its own pieces."""
        ...

    @property
    def pieces(self) -> int:
        """Pieces a thread numbers, with those that are left out."""
        ...

    @property
    def left_out(self) -> tuple[int, ...]:
        """Pieces without elements, in order, as ``thread·pieces + piece``."""
        ...

    @property
    def steps(self) -> int:
        """Steps of the aggregation, D; the broadcast has as many."""
        ...

    @property
    def rounds(self) -> int:
        """In how many parts each piece is sent, each one step behind the part before it."""
        ...

    def owner(self, thread: int, piece: int) -> int:
        """Return the server that a piece is summed on."""
        ...

    def layout(self, elements: int, element_bytes: int) -> Layout:
        """Return where the pieces of a gradient of so many elements start."""
        ...

    def transfers(self, server: int) -> Iterator[Transfer]:
        """Yield what a server sends, in the order of stages and steps."""
        ...

    def hops(self, thread: int, piece: int) -> Iterator[Hops]:
        """Yield how one piece travels in the aggregation, step by step."""
        ...
