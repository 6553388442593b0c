"""Replays programs transfer by transfer, and counts every byte."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction

Key = Hashable
Count = tuple[int, ...]


@dataclass(frozen=True)
class Transfer:
    """One buffer on its way; it is added to what its receiver has there, or takes its place."""

    sender: int
    receiver: int
    nic: int
    buffer: Key
    target: Key
    size: Fraction
    adds: bool


class Replay:
    """Servers with buffers: how often each server's contribution is in each of them.

    `linked` says whether one server reaches another by a NIC in one step.
    """

    def __init__(self, servers: int, linked: Callable[[int, int, int], bool]) -> None:
        self.servers, self.linked = servers, linked
        self.held: dict[tuple[int, Key], Count] = {}
        self.steps = 0

    def own(self, server: int) -> Count:
        return tuple(int(other == server) for other in range(self.servers))

    def step(self, transfers: Iterable[Transfer]) -> None:
        """Carry out concurrent transfers: each copies what its sender held before the step."""
        moved = list(transfers)
        assert moved
        contents = [self.held[one.sender, one.buffer] for one in moved]
        written: dict[tuple[int, Key], bool] = defaultdict(bool)
        for one, content in zip(moved, contents, strict=True):
            assert self.linked(one.sender, one.receiver, one.nic)
            place = one.receiver, one.target
            assert one.adds or not written[place]
            had = self.held[place] if one.adds else (0,) * self.servers
            self.held[place] = tuple(a + b for a, b in zip(had, content, strict=True))
            written[place] = True
        self.steps += 1

    def finish(self, buffers: Iterable[Key]) -> None:
        """Assert that everyone has every buffer, with each contribution in it exactly once."""
        whole = (1,) * self.servers
        for buffer in buffers:
            for server in range(self.servers):
                assert self.held[server, buffer] == whole, (server, buffer)
