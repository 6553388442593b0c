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

__all__ = ["Fabric", "SwitchCounts", "switch_counts"]


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


@dataclass(frozen=True, slots=True)
class SwitchCounts:
    """Switches that connect N = n^k servers.

    Attributes
    ----------
    bcube : int
        Of n ports, in BCube(n, k): k·N/n.
    fat_tree : int
        Of n ports, in a Fat-Tree by the paper's count: 5·N/n rounded up.
    k_nics : int
        The same with k NICs a server, as many as in the BCube.
    tree : FatTree
        The smallest Fat-Tree that can be built for N servers; it has its own number of ports.
    buildable : bool
        Whether n-port switches can be built into a Fat-Tree of N servers: n is even, N ≤ n³/4.
    """

    bcube: int
    fat_tree: int
    k_nics: int
    tree: FatTree
    buildable: bool


def switch_counts(bcube: BCube) -> SwitchCounts:
    """Return how many switches the servers of a BCube take on each topology."""
    single = Fabric.beside(bcube)
    return SwitchCounts(
        bcube.switches,
        single.switches,
        Fabric.beside(bcube, bcube.k).switches,
        single.tree,
        bcube.n % 2 == 0 and 4 * bcube.servers <= bcube.n**3,
    )
