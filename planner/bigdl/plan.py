"""Plans of synchronisation: between the nodes, or through Spark's driver.

A plan holds what its parts are computed from, never a list of all pulls: there are N² of them.
"""

from dataclasses import dataclass
from typing import Literal

from planner.bigdl.slices import slice_of

__all__ = ["Driver", "Exchange", "Plan"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Every node sums one slice of all gradients, then fetches the other updated slices.

    In each turn every node pulls from one node; the turn in which it comes to itself needs no
    network. Both phases follow the same order.

    Parameters
    ----------
    elements : int
        Elements of the gradient.
    nodes : int
        Number of nodes; node i owns slice i.
    order : {"rotated", "same"}
        Node i asks node ``(i + turn) mod N``, itself first, so that nobody is asked by two at once;
        or everybody asks node ``turn``.
    """

    elements: int
    nodes: int
    order: Literal["rotated", "same"] = "rotated"

    def slice(self, node: int) -> tuple[int, int]:
        """Return the slice that a node owns: its first element, and the one after its last."""
        return slice_of(self.elements, self.nodes, node)

    def asked(self, node: int, turn: int) -> int:
        """Return which node a node pulls from in a turn (from 0)."""
        return (node + turn) % self.nodes if self.order == "rotated" else turn

    def pull_order(self, node: int) -> tuple[int, ...]:
        """Return all nodes in the order in which a node pulls from them. O(N)."""
        start = node if self.order == "rotated" else 0
        return (*range(start, self.nodes), *range(start))


@dataclass(frozen=True, slots=True)
class Driver:
    """Gradients are merged level by level, the last level's in the driver, which sends weights.

    The driver is a machine of its own. It holds no partition.

    Parameters
    ----------
    levels : tuple of int
        How many partial sums there are: first one a task, at last those the driver collects.
    torrent : bool
        Whether nodes pass the weights on to each other; else the driver sends one copy to each.
    """

    levels: tuple[int, ...]
    torrent: bool = False


Plan = Exchange | Driver
