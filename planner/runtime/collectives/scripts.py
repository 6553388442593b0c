"""A server's own script for a synchronisation: what it sends and receives, step by step.

Problem. A server that executes a plan has to know what it receives as well as what it sends, in
elements of the tensor at hand, and what may be under way at the same time.

Method. The parts of a plan in rounds are chains of steps. A thread begins a step when the one
before it in its chain is complete, so that the steps of other parts keep the links busy meanwhile;
a chain begins when the first step of the chain before it is complete. Layers are such chains too.

Guarantee. Both ends of a link have the same messages in the same order in each thread, and threads
complete steps in that order; so servers that go through their scripts at their own pace never wait
for each other for ever.

Complexity. Linear in what a server sends and receives, but for sorting.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from planner.bml.rows import Row
from planner.topologies import BCube

__all__ = ["NeighbourHop", "Routes", "Script", "Step"]


class NeighbourHop(NamedTuple):
    """Elements start … stop-1 go to or come from a peer; to be added, or the sum."""

    peer: int
    level: int
    start: int
    stop: int
    adds: bool


class Step(NamedTuple):
    """What a thread sends and receives for one part in one step.

    Attributes
    ----------
    after : int
        The last of the thread's steps that has to be complete before, by its place; -1 if none has.
    sends, receives : tuple of NeighbourHop
        In this order.
    """

    after: int
    sends: tuple[NeighbourHop, ...]
    receives: tuple[NeighbourHop, ...]


_When = tuple[tuple[int, int], int]
"""The turn, and the part."""

Script = tuple[tuple[Step, ...], ...]
"""The steps of each thread of a server."""


class Routes(ABC):
    """A plan as all servers follow it.

    Attributes
    ----------
    bcube : BCube
        The topology.
    name : str
        What ranks compare.
    """

    def __init__(self, bcube: BCube, name: str) -> None:
        self.bcube = bcube
        self.name = name

    @property
    @abstractmethod
    def used(self) -> frozenset[tuple[int, int]] | None:
        """Servers and levels of the NICs that are used; None: all."""

    @property
    def servers(self) -> tuple[int, ...]:
        """The servers that take part, in order."""
        if self.used is None:
            return tuple(range(self.bcube.servers))
        return tuple(sorted({server for server, _ in self.used}))

    def groups(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield level, switch and servers of every switch that is used."""
        for level in range(self.bcube.k):
            for switch in range(self.bcube.servers // self.bcube.n):
                servers = self.bcube.on_switch(level, switch)
                if self.used is not None:
                    servers = tuple(server for server in servers if (server, level) in self.used)
                if servers:
                    yield level, switch, servers

    @abstractmethod
    def rows(self, server: int, elements: int, element_bytes: int, rounds: int) -> Iterable[Row]:
        """Return what a server sends and receives, in each sender's order, in elements.

        Raises
        ------
        InvalidInputError
            If the plan is not about tensors of this size.
        """

    def script(self, server: int, elements: int, element_bytes: int = 1, rounds: int = 1) -> Script:
        """Return the steps of each thread of a server, k threads in all.

        Parameters
        ----------
        server : int
            Whose.
        elements, element_bytes : int
            Elements of the tensor, and the size of one.
        rounds : int
            In how many parts each piece is sent at least, each one step behind the part before it;
            a plan in bytes says that itself.

        Raises
        ------
        InvalidInputError
            If the plan is not about tensors of this size.
        """
        k = self.bcube.k
        threads: list[dict[_When, tuple[list[NeighbourHop], list[NeighbourHop]]]] = [
            defaultdict(lambda: ([], [])) for _ in range(k)
        ]
        for row in self.rows(server, elements, element_bytes, rounds):
            sends, receives = threads[row.thread % k][row.turn, row.part]
            if row.server == server:
                sends.append(NeighbourHop(row.peer, row.level, row.start, row.stop, row.adds))
            else:
                receives.append(NeighbourHop(row.server, row.level, row.start, row.stop, row.adds))
        return tuple(tuple(self._steps(server, thread)) for thread in threads)

    def _steps(
        self, server: int, thread: Mapping["_When", tuple[list[NeighbourHop], list[NeighbourHop]]]
    ) -> Iterator[Step]:
        """Yield the steps of a thread, of those at the same time that of the first part first."""

        def arrival(hop: NeighbourHop) -> tuple[int, int]:
            own, theirs = (self.bcube.digit(end, hop.level) for end in (server, hop.peer))
            return hop.level, (own - theirs) % self.bcube.n  # who sends to us first comes first

        last: dict[tuple[int, int], int] = {}
        first = -1  # of the part before
        for place, when in enumerate(sorted(thread)):
            ((layer, _), part), (sends, receives) = when, thread[when]
            if (layer, part) not in last:
                after, first = first, place
            else:
                after = last[layer, part]
            last[layer, part] = place
            yield Step(after, tuple(sends), tuple(sorted(receives, key=arrival)))
