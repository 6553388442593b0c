"""Fat-Trees as costs see them, and how many switches a topology takes.

A Fat-Tree has full bisection bandwidth: to its servers it is one non-blocking switch, and only the
number of real switches tells it from one. Two counts of them are kept apart. The paper's, 5·N/p
with p-port switches, takes any N and p; but p-port switches carry at most p³/4 servers, so for more
the switches have to be larger, and fewer: the smallest tree that can be built.

Source: Wang et al., "BML", NeurIPS 2018, section 3.1; Al-Fares et al., SIGCOMM'08.
"""

from dataclasses import dataclass

from planner.topologies import BCube, FatTree
from planner.validation import set_integer

__all__ = ["Fabric"]


@dataclass(frozen=True, slots=True)
class Fabric:
    """Servers on Fat-Trees, one tree for each of their NICs.

    Parameters
    ----------
    servers : int
        Number of servers N, at least 2.
    ports : int
        Ports p of a switch, for the paper's count.
    nics : int
        NICs of a server.
    """

    servers: int
    ports: int
    nics: int = 1

    def __post_init__(self) -> None:
        set_integer(self, "servers", minimum=2)
        set_integer(self, "ports", minimum=2)
        set_integer(self, "nics", minimum=1)

    @classmethod
    def beside(cls, bcube: BCube, nics: int = 1) -> "Fabric":
        """Return the one of the same servers and the same switches as a BCube."""
        return cls(bcube.servers, bcube.n, nics)

    @property
    def switches(self) -> int:
        """The paper's count for every NIC, 5·N/p rounded up."""
        return self.nics * -(-5 * self.servers // self.ports)

    @property
    def tree(self) -> FatTree:
        """The smallest three-layer Fat-Tree with room for the servers."""
        return FatTree.smallest_for(self.servers)
