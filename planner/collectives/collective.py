"""The cost of an all-reduce algorithm: its steps, and its volume as a share of the gradient.

The closed forms assume pieces that divide evenly. `Cost.time_ns` applies them to any network and
any gradient size.
"""

from dataclasses import dataclass
from fractions import Fraction

from planner.network import Network
from planner.topologies import FatTree
from planner.validation import integer, total

__all__ = ["Collective", "Cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The steps of an algorithm and its largest loads. A lower bound has the same form.

    Attributes
    ----------
    steps : int
        Sets of concurrent transfers; each starts when the one before has ended.
    volume : Fraction
        Bytes through the busiest NIC in one direction, summed over the steps, as a share of the
        gradient: the synchronisation time in units of T_F.
    reduced : Fraction
        Bytes that the busiest server adds, summed over the steps, as a share of the gradient.
    """

    steps: int
    volume: Fraction
    reduced: Fraction

    def time_ns(self, network: Network, gradient_bytes: int) -> int:
        """Return the time of one synchronisation in ns, rounded up once.

        Parameters
        ----------
        network : Network
            Speed of a link, start-up cost of a step, time of adding a byte.
        gradient_bytes : int
            Size of the gradient.

        Raises
        ------
        InvalidInputError
            If the size is none, or the time does not fit in 63 bits.
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
    tree : FatTree or None
        The smallest three-layer Fat-Tree with room for all servers; None on a BCube.
    """

    algorithm: str
    topology: str
    servers: int
    nics: int
    switches: int
    tree: FatTree | None = None

    @property
    def name(self) -> str:
        """The algorithm and the topology, such as ``ring_bcube``."""
        return f"{self.algorithm}_{self.topology}"

    @property
    def built_switches(self) -> int:
        """Number of switches if every NIC is plugged into a complete Fat-Tree."""
        return self.switches if self.tree is None else self.nics * self.tree.switches
