"""The synchronisation problem of BigDL: gradients of many partitions in, updated weights out.

Every node runs some tasks, each on one partition of the data, and each task ends an iteration with
a gradient. Then every node must hold the weights updated by the sum of all gradients. Each node has
one full-duplex NIC on one non-blocking switch.

Source: Venkataraman, Ding and Ermolin, section "Communications in BigDL", Fig. 2.
"""

from dataclasses import dataclass
from typing import Literal

from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.model.validation import set_integer, shown, total

MAX_NODES = 2**20
MAX_PARTITIONS = 2**20
"""Most partitions on one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The gradients to synchronise, the nodes, and their network.

    Parameters
    ----------
    elements : int
        Elements E of the gradient, and of the weights.
    element_bytes : int
        Size of one element, in bytes.
    nodes : int
        Number of nodes N, at most 2^20.
    partitions_per_node : int
        Tasks P on each node, each with a gradient of its own; at most 2^20.
    network : Network
        The nodes' links, the start-up of a step, and the time of adding.

    Raises
    ------
    InvalidInputError
        If an input is invalid, with the path of the field.
    """

    elements: int
    element_bytes: int
    nodes: int
    partitions_per_node: int
    network: Network

    def __post_init__(self) -> None:
        set_integer(self, "elements", minimum=1)
        set_integer(self, "element_bytes", minimum=1)
        total(self.gradient_bytes, "elements", "elements times element_bytes")
        set_integer(self, "nodes", minimum=1, maximum=MAX_NODES)
        set_integer(self, "partitions_per_node", minimum=1, maximum=MAX_PARTITIONS)
        network: object = self.network
        if not isinstance(network, Network):
            raise InvalidInputError("network", f"expected a Network, got {shown(network)}")

    @property
    def gradient_bytes(self) -> int:
        """Size of one gradient, and of the weights."""
        return self.elements * self.element_bytes

    @property
    def tasks(self) -> int:
        """Tasks on all nodes together, N·P; one gradient each."""
        return self.nodes * self.partitions_per_node


# ---
# Slices of a gradient: one contiguous slice for each node, sizes differing by at most one element.
#
# Slice i starts at ``i·(E div N) + min(i, E mod N)``; the first E mod N slices are one element
# longer. With fewer elements than nodes the last slices are empty. Nothing is stored.
#
# Complexity: O(1) a slice. Source: BigDL's ``AllReduceParameter``; Venkataraman, Ding and Ermolin,
# section "Communications in BigDL".


def slice_of(elements: int, nodes: int, index: int) -> tuple[int, int]:
    """Return the first element of a slice, and the element after its last."""
    length, longer = divmod(elements, nodes)
    start = index * length + min(index, longer)
    return start, start + length + (index < longer)


def largest_slice(elements: int, nodes: int) -> int:
    """Return the size of the largest slice, in elements."""
    return -(-elements // nodes)


# ---
# Plans of synchronisation: an exchange between the nodes, or sums through Spark's driver.
#
# A plan stores the parameters of a formula, never the list of all N² pulls.


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
