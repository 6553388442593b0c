"""Fat-Trees as the cost models see them, and their number of switches.

A Fat-Tree has full bisection bandwidth, so it costs the same as one non-blocking switch. There are
two counts of its switches. The paper's count, 5·N/p with p-port switches, takes any N and p. But
p-port switches carry at most p³/4 servers; for more servers a tree that can be built has larger
and fewer switches (`Fabric.tree`).

Source: Wang et al., "BML", NeurIPS 2018, section 3.1; Al-Fares et al., SIGCOMM'08.
"""

from dataclasses import dataclass

from planner.topologies import BCube, FatTree
from planner.validation import set_integer

__all__ = ["Fabric"]


@dataclass(frozen=True, slots=True)
class Fabric:
    """Servers connected by one Fat-Tree per NIC; `ports` is the p of the paper's count."""

    servers: int
    ports: int
    nics: int = 1

    def __post_init__(self) -> None:
        set_integer(self, "servers", minimum=2)
        set_integer(self, "ports", minimum=2)
        set_integer(self, "nics", minimum=1)

    @classmethod
    def beside(cls, bcube: BCube, nics: int = 1) -> "Fabric":
        """Return the Fat-Tree with the servers and the switch ports of a BCube."""
        return cls(bcube.servers, bcube.n, nics)

    @property
    def switches(self) -> int:
        """The paper's number of switches for all NICs, 5·N/p rounded up for each NIC."""
        return self.nics * -(-5 * self.servers // self.ports)

    @property
    def tree(self) -> FatTree:
        """The smallest three-layer Fat-Tree with room for the servers."""
        return FatTree.smallest_for(self.servers)
