"""Replays all-reduce algorithms, written down transfer by transfer, and counts every byte.

Independent of the closed forms: a buffer holds how often each server's contribution is in it, a
transfer copies what its sender held before the step, and NICs and additions are counted exactly.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction

Nic = int
Key = Hashable
Count = tuple[int, ...]


@dataclass(frozen=True)
class Transfer:
    """One buffer on its way; it is added to what its receiver has there, or takes its place."""

    sender: int
    receiver: int
    nic: Nic
    buffer: Key
    size: Fraction
    adds: bool = False


class Replay:
    """Servers with buffers, and what has been sent and added so far.

    Parameters
    ----------
    servers : int
        Number of servers.
    linked : callable
        Whether one server reaches another by a NIC in one step; the receiver uses the same NIC.
    """

    def __init__(self, servers: int, linked: Callable[[int, int, Nic], bool]) -> None:
        self.servers, self.linked = servers, linked
        self.held: dict[tuple[int, Key], Count] = {}
        self.steps = 0
        self.volume = self.reduced = Fraction(0)

    def own(self, server: int) -> Count:
        return tuple(int(other == server) for other in range(self.servers))

    def step(self, transfers: Iterable[Transfer]) -> None:
        """Carry out concurrent transfers."""
        moved = list(transfers)
        assert moved
        sent: dict[tuple[str, int, Nic], Fraction] = defaultdict(Fraction)
        added: dict[int, Fraction] = defaultdict(Fraction)
        contents = [self.held[one.sender, one.buffer] for one in moved]
        written: set[tuple[int, Key]] = set()
        for one, sending in zip(moved, contents, strict=True):
            assert one.sender != one.receiver
            assert self.linked(one.sender, one.receiver, one.nic)
            sent["out", one.sender, one.nic] += one.size
            sent["in", one.receiver, one.nic] += one.size
            place = one.receiver, one.buffer
            if one.adds:
                added[one.receiver] += one.size
                had = self.held[place]
                self.held[place] = tuple(a + b for a, b in zip(had, sending, strict=True))
            else:
                assert place not in written
                self.held[place] = sending
            written.add(place)
        self.steps += 1
        self.volume += max(sent.values())
        self.reduced += max(added.values(), default=Fraction(0))

    def finish(self, buffers: Iterable[Key]) -> None:
        """Assert that everyone has every buffer, with each contribution in it exactly once."""
        whole = (1,) * self.servers
        for buffer in buffers:
            for server in range(self.servers):
                assert self.held[server, buffer] == whole, (server, buffer)
