"""The time of a synchronous step of a collective algorithm on identical links.

In a step every NIC sends and receives at once (full duplex) at the full link speed, and received
data is added. The busiest NIC and the busiest server determine the time: ``startup + sent/rate +
reduced·γ``. A step that sends nothing takes no time. Times are exact fractions: the steps of an
algorithm are summed, and the sum is rounded up once, as bounds are.
"""

from dataclasses import dataclass
from fractions import Fraction

from planner.model.clusters import Nic
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.validation import set_exact, set_integer

AnyNetwork = AffineCost | TableCost | DepthCost | Nic
"""A network: the cost of one communication over it, or its NICs."""


@dataclass(frozen=True, slots=True)
class Network:
    """Links of one speed, the start-up cost of a step, and the time of adding."""

    link_bytes_per_s: Fraction  # that a NIC sends, and receives
    startup_ns: int = 0  # of a step
    # Time γ for a server to add one received byte, for all its NICs together.
    reduce_ns_per_byte: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        set_integer(self, "startup_ns")
        set_exact(self, "link_bytes_per_s", positive=True)
        set_exact(self, "reduce_ns_per_byte")

    def time(
        self, sent_bytes: Fraction | int, reduced_bytes: Fraction | int = 0, steps: int = 0
    ) -> Fraction:
        """Return the unrounded time (ns) of `steps` starts, of sending, and of adding."""
        sent = Fraction(10**9) * sent_bytes / self.link_bytes_per_s
        return steps * self.startup_ns + sent + reduced_bytes * self.reduce_ns_per_byte

    def step(self, sent_bytes: Fraction | int, reduced_bytes: Fraction | int = 0) -> Fraction:
        """Return the unrounded time of one step.

        The busiest NIC sends or receives `sent_bytes`; the busiest server adds `reduced_bytes`.
        """
        return self.time(sent_bytes, reduced_bytes, 1) if sent_bytes else Fraction(0)

    def full_transfer_ns(self, size: int) -> int:
        """Return the time T_F of `size` bytes over one link, without a start-up cost."""
        return -int(-self.time(size) // 1)


def scaled_network(
    network: Network, *, startup: Fraction, bandwidth: Fraction, computation: Fraction
) -> Network:
    """Return links with start-up and bandwidth multiplied; the time to add is computation."""
    return Network(
        network.link_bytes_per_s * bandwidth,
        round(network.startup_ns * startup),
        network.reduce_ns_per_byte * computation,
    )


def batch_cost(network: AnyNetwork) -> AffineCost | TableCost:
    """Return the cost of one communication over all NICs of a machine at once.

    A cost of several depths is an InvalidInputError.
    """
    if isinstance(network, DepthCost):
        raise InvalidInputError("network.depths", "only transfers of an all-reduce are cut")
    return _all_nics(network) if isinstance(network, Nic) else network


def ring_cost(network: AnyNetwork, workers: int) -> AffineCost | TableCost | DepthCost:
    """Return the cost of an all-reduce; if NICs are given, that of a ring.

    In a ring each of W workers sends 2(W-1)/W bytes per byte of gradient. The start-up cost covers
    the whole all-reduce.
    """
    if not isinstance(network, Nic):
        return network
    cost = _all_nics(network)
    return AffineCost(cost.startup_ns, 2 * scattered(workers) * cost.ns_per_byte)


def links(network: AnyNetwork, levels: int, reduce_ns_per_byte: Fraction | int = 0) -> Network:
    """Return the links between servers that have one NIC at each of `levels` levels.

    The network is NICs, or the affine cost of one message over a link. InvalidInputError if it does
    not describe a single link.
    """
    if isinstance(network, Nic):
        if network.per_machine not in (1, levels):
            raise InvalidInputError(
                "network.per_machine", f"expected {levels} of a server, got {network.per_machine}"
            )
        if network.message_ns:
            raise InvalidInputError(
                "network.message_ns", "expected 0: further messages of a step cost nothing here"
            )
        return Network(network.bytes_per_s, network.startup_ns, Fraction(reduce_ns_per_byte))
    if not isinstance(network, AffineCost) or not network.ns_per_byte:
        raise InvalidInputError(
            "network", "expected startup_ns and bytes_per_s of a NIC, or ns_per_byte > 0 of a link"
        )
    rate = 10**9 / network.ns_per_byte
    return Network(rate, network.startup_ns, Fraction(reduce_ns_per_byte))


def scattered(servers: int) -> Fraction:
    """Return (N-1)/N: the share of a gradient that a server sends when it keeps one of N pieces."""
    return Fraction(servers - 1, servers)


def _all_nics(nic: Nic) -> AffineCost:
    return AffineCost.from_bandwidth(nic.startup_ns, nic.bytes_per_s * nic.per_machine)
