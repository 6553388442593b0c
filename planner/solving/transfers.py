"""Transfers: which bytes of which parameters travel together, and how.

Searches know sizes only, and programs know names and elements; this form connects both. A plan of
`caramel` has all-reduces only, a plan of `iteration` also pushes and pulls.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["all_reduce", "push", "pull"]
"""Kind of a transfer: all-reduce, push (reduce-scatter) or pull (all-gather)."""


class Part(NamedTuple):
    """Bytes start … stop-1 of one parameter (an index into `Graph.parameters`)."""

    parameter: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """The contents of one transfer, and how it is sent.

    Attributes
    ----------
    parts : tuple of Part
        At least one, none empty: bytes of gradients; of parameters for a pull.
    depth : int
        Number of chunks in flight, each a step behind the one before.
    not_before_ns : int
        Earliest start of the transfer, even if it is ready before (systems that send at intervals).
    kind : {"all_reduce", "push", "pull"}
        All-reduce, reduce-scatter or all-gather.
    algorithm : str, optional
        Its synchronisation algorithm, if not that of its plan.
    """

    parts: tuple[Part, ...]
    depth: int = 1
    not_before_ns: int = 0
    kind: Kind = "all_reduce"
    algorithm: str | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the transfer."""
        if len(self.parts) == 1:  # most, if there are thousands of transfers
            ((_, start, stop),) = self.parts
            return stop - start
        return sum(part.stop - part.start for part in self.parts)


def undivided(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    """Return all-reduces of the same bytes, each in one piece by the plan's algorithm."""
    return tuple(Transfer(each.parts, not_before_ns=each.not_before_ns) for each in transfers)
