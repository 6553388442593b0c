"""The cost of an all-reduce algorithm: its steps, and its volume as a share of the gradient.

The closed forms assume pieces that divide evenly. `Cost.time_ns` applies them to any network and
any gradient size.
"""

from dataclasses import dataclass
from fractions import Fraction

from planner.model.network import Network, scattered
from planner.model.topologies import BCube, FatTree
from planner.model.validation import integer, set_integer, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The steps of an algorithm and its largest loads. A lower bound has the same form.

    Steps are sets of concurrent transfers; each starts when the one before has ended. The volume is
    the synchronisation time in units of T_F.
    """

    steps: int
    volume: Fraction  # through the busiest NIC in one direction, in gradients
    reduced: Fraction  # that the busiest server adds, in gradients

    def time_ns(self, network: Network, gradient_bytes: int) -> int:
        """Return the time of one synchronisation in ns, rounded up once.

        Raises `InvalidInputError` if the size is invalid, or the time does not fit in 63 bits.
        """
        size = integer(gradient_bytes, "gradient_bytes")
        if not size:
            return 0  # a step in which nothing is sent takes no time
        time = network.time(self.volume * size, self.reduced * size, self.steps)
        return total(-int(-time // 1), "gradient_bytes", "the time of a synchronisation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(Cost):
    """The cost of an all-reduce algorithm on a topology.

    Attributes
    ----------
    algorithm : str
        Name of the algorithm.
    topology : str
        ``bcube`` or ``fattree``.
    servers : int
        Number of servers N.
    nics : int
        NICs of a server.
    switches : int
        Switches as the BML paper counts them (`Fabric.switches`).
    """

    algorithm: str
    topology: str
    servers: int
    nics: int
    switches: int

    @property
    def name(self) -> str:
        """The algorithm and the topology, such as ``ring_bcube``."""
        return f"{self.algorithm}_{self.topology}"


# ---
# Fat-Trees as the cost models see them, and their number of switches.
#
# A Fat-Tree has full bisection bandwidth, so it costs the same as one non-blocking switch. There
# are two counts of its switches. The paper's count, 5·N/p with p-port switches, takes any N and p.
# But p-port switches carry at most p³/4 servers; for more servers a tree that can be built has
# larger and fewer switches (`Fabric.tree`).
#
# Source: Wang et al., "BML", NeurIPS 2018, section 3.1; Al-Fares et al., SIGCOMM'08.


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
    def of_bcube(cls, bcube: BCube, nics: int = 1) -> "Fabric":
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


def placed(
    algorithm: str,
    place: BCube | Fabric,
    steps: int,
    volume: Fraction,
    reduced: Fraction | None = None,
) -> Collective:
    """Return the algorithm on a BCube or a Fat-Tree; by default a server adds (N-1)/N."""
    return Collective(
        algorithm=algorithm,
        topology="bcube" if isinstance(place, BCube) else "fattree",
        servers=place.servers,
        nics=place.k if isinstance(place, BCube) else place.nics,
        switches=place.switches,
        steps=steps,
        volume=volume,
        reduced=scattered(place.servers) if reduced is None else reduced,
    )


# ---
# Lower bound on the cost of every all-reduce algorithm.
#
# Problem: N servers with k full-duplex NICs each hold a gradient; all of them shall hold the sum.
# Messages carry partial sums. Guarantee: no algorithm has less volume than 2(N-1)/(kN), adds less
# than (N-1)/N at the busiest server, or takes fewer steps than the diameter of the network. Each is
# a bound by itself, and a time is the sum of the three, so the time of the bound is a lower bound
# too. Proof: docs/bml.md, "Why no all-reduce has less volume". Source: Patarasuk and Yuan,
# "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", JPDC 2009 (volume for k =
# 1); BML meets it for k NICs (NeurIPS 2018, section 3.2).


def lower_bound(servers: int, nics: int = 1, diameter: int = 1) -> Cost:
    """Return the lower bound over all all-reduce algorithms on servers with `nics` NICs each.

    `diameter` is the most hops between two servers: 1 on a switch and on a Fat-Tree, k on BCube(n,
    k). InvalidInputError if one of them is below 1.
    """
    integer(servers, "servers", minimum=1)
    integer(nics, "nics", minimum=1)
    integer(diameter, "diameter", minimum=1)
    return Cost(
        steps=diameter if servers > 1 else 0,
        volume=Fraction(2 * (servers - 1), nics * servers),
        reduced=Fraction(servers - 1, servers),
    )
