"""Plans of synchronisation: an exchange between the nodes, or sums through Spark's driver.

A plan stores the parameters of a formula, never the list of all N² pulls.
"""

from dataclasses import dataclass
from typing import Literal

from planner.bigdl.slices import slice_of

__all__ = ["Driver", "Exchange", "Plan"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Each node sums one slice of all gradients, then fetches the other updated slices.

    In each turn every node pulls from one node; pulling from itself needs no network. Both phases
    follow the same order.

    Parameters
    ----------
    elements : int
        Elements of the gradient.
    nodes : int
        Number of nodes; node i owns slice i.
    order : {"rotated", "same"}
        ``rotated``: node i pulls from node ``(i + turn) mod N``, so no two nodes pull from the same
        node in one turn. ``same``: every node pulls from node ``turn``.
    """

    elements: int
    nodes: int
    order: Literal["rotated", "same"] = "rotated"

    def slice(self, node: int) -> tuple[int, int]:
        """Return the slice that a node owns: its first element, and the one after its last."""
        return slice_of(self.elements, self.nodes, node)

    def asked(self, node: int, turn: int) -> int:
        """Return the node that `node` pulls from in a turn (counted from 0)."""
        return (node + turn) % self.nodes if self.order == "rotated" else turn

    def pull_order(self, node: int) -> tuple[int, ...]:
        """Return all nodes in the order in which a node pulls from them. O(N)."""
        start = node if self.order == "rotated" else 0
        return (*range(start, self.nodes), *range(start))


@dataclass(frozen=True, slots=True)
class Driver:
    """Gradients are merged level by level; the driver merges the last level and sends the weights.

    The driver is a machine of its own. It holds no partition.

    Parameters
    ----------
    levels : tuple of int
        Number of partial sums at each level: first one for each task, last those that the driver
        collects.
    torrent : bool
        Whether nodes pass the weights on to each other; otherwise the driver sends one copy to
        each.
    """

    levels: tuple[int, ...]
    torrent: bool = False


Plan = Exchange | Driver
