"""The synchronisation problem of BigDL: gradients of many partitions in, updated weights out.

Every node runs some tasks, each on one partition of the data, and each task ends an iteration with
a gradient. Then every node must hold the weights updated by the sum of all gradients. Each node has
one full-duplex NIC on one non-blocking switch.

Source: Venkataraman, Ding and Ermolin, section "Communications in BigDL", Fig. 2.
"""

from dataclasses import dataclass

from planner.errors import InvalidInputError
from planner.network import Network
from planner.validation import set_integer, shown, total

__all__ = ["MAX_NODES", "MAX_PARTITIONS", "Problem"]

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
