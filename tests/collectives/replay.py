"""What a program sends in each step, transfer by transfer."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import NamedTuple


class Transfer(NamedTuple):
    """A part of the gradient on its way, over a NIC of its sender."""

    sender: int
    receiver: int
    nic: int
    size: Fraction


class Replay:
    """Steps of concurrent transfers.

    `linked` says whether one server reaches another by a NIC in one step.
    """

    def __init__(self, servers: int, linked: Callable[[int, int, int], bool]) -> None:
        self.servers, self.linked = servers, linked
        self.steps = 0

    def step(self, transfers: Iterable[Transfer]) -> None:
        """Carry out concurrent transfers."""
        moved = list(transfers)
        assert moved
        assert all(self.linked(one.sender, one.receiver, one.nic) for one in moved)
        self.steps += 1
