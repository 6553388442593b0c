"""What each synchronisation algorithm costs on a cluster.

Problem: a cluster allows some algorithms; what does a transfer of so many bytes take under each,
summed up on all workers (all-reduce), or only one half of it: summing up, each worker its share
(push, reduce-scatter), or handing out (pull, all-gather)?

Method: steps times the start-up cost, and the busiest NIC's bytes over its speed, as in
`planner.collectives`. Where a machine exchanges with several others in one step, every message but
the first adds the gap between messages. Machines with several NICs on a switch stripe over all of
them. What machines share carries all that anybody sends, (N-1) times the bytes in each half; the
slower of the two counts. Every algorithm here is its own mirror image: both halves cost the same.

Guarantee: exact for pieces that divide evenly. `least` is a bound on every algorithm: its share
of a half's volume is no more than the bound of `planner.collectives.bound` divided by two.

Complexity: O(1) an algorithm.

Source: Wang et al., "BML", NeurIPS 2018, sections 2 and 3 (costs); Patarasuk and Yuan, JPDC 2009
(ring, bound); halves: Zhang et al., "DeAR", ICDCS 2023, and the all-gather and reduce-scatter of
Rajbhandari et al., "ZeRO", SC 2020.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from planner.clusters import Cluster
from planner.collectives import RAILS, collective, hierarchical_cost, lower_bound, tree_groups
from planner.collectives.collective import Cost
from planner.collectives.exchange import ps_fattree, shuffle_fattree
from planner.collectives.fabric import Fabric
from planner.collectives.halving_doubling import halving_doubling_fattree
from planner.collectives.recipes import Recipe
from planner.collectives.ring import ring_fattree
from planner.costs import AffineCost
from planner.errors import NotApplicableError
from planner.topologies import BCube, FatTree, Rails

__all__ = ["ALGORITHMS", "Synchronisation", "least", "recipe_on", "synchronisations", "undominated"]

ALGORITHMS = ("ring", "halving_doubling", "hierarchical", "ps", "shuffle", "bml")
"""Every algorithm by the name requests use; of equally fast ones the first is taken."""

NONE = "none"
"""The algorithm of a single worker."""

_SECOND = Fraction(10**9)


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """An algorithm on a cluster.

    Attributes
    ----------
    algorithm : str
        One of `ALGORITHMS`, or ``none`` for a single worker.
    steps : int
        Steps of an all-reduce.
    half : AffineCost
        What a push, or a pull, of so many bytes costs.
    """

    algorithm: str
    steps: int
    half: AffineCost

    @property
    def all_reduce(self) -> AffineCost:
        """What an all-reduce of so many bytes costs: both halves."""
        return AffineCost(2 * self.half.startup_ns, 2 * self.half.ns_per_byte)

    @property
    def in_libraries(self) -> bool:
        """Whether today's libraries have it: all but BML are common."""
        return self.algorithm != "bml"


def synchronisations(
    cluster: Cluster, algorithms: Iterable[str] = ALGORITHMS
) -> tuple[tuple[Synchronisation, ...], tuple[tuple[str, str], ...]]:
    """Return what can be used on a cluster, and what cannot with the reason.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    algorithms : iterable of str
        Those to consider.
    """
    if cluster.workers == 1:
        return (Synchronisation(NONE, 0, AffineCost(0, Fraction(0))),), ()
    usable, left_out = [], []
    for name in algorithms:
        try:
            usable.append(_on(cluster, name))
        except NotApplicableError as error:
            left_out.append((name, error.message))
    return tuple(usable), tuple(left_out)


def recipe_on(cluster: Cluster, algorithm: str) -> Recipe:
    """Return how to make the program of an algorithm that can be used on a cluster.

    Machines with several NICs on a switch are one rank with one link: a transfer uses all NICs.
    """
    topology, machines = cluster.topology, cluster.machines
    name = "direct" if algorithm in ("ps", "shuffle") else algorithm
    if cluster.workers == 1:
        return Recipe("ring", (1,))
    if isinstance(topology, Rails):
        rails = "ps" if name == "direct" else name
        return Recipe(f"{rails}_rails", (topology.hosts, topology.accelerators))
    if isinstance(topology, BCube):
        on_bcube = {"bml": "bml", "direct": "routed_bcube"}.get(name, f"{name}_bcube")
        return Recipe(on_bcube, (topology.n, topology.k))
    if name == "hierarchical" and isinstance(topology, FatTree):
        return Recipe(name, tree_groups(machines, topology))
    return Recipe(name, (machines,))


def least(cluster: Cluster) -> Synchronisation:
    """Return what no algorithm on the cluster undercuts: no start-ups, and the least volume."""
    topology = cluster.topology
    if cluster.workers == 1:
        return Synchronisation(NONE, 0, AffineCost(0, Fraction(0)))
    if isinstance(topology, Rails):
        between = lower_bound(topology.hosts, topology.accelerators).volume / 2
        within = lower_bound(topology.servers).volume / 2 if topology.hosts == 1 else Fraction(0)
        rate = _per_byte(between, cluster.nic.bytes_per_s)
        rate = max(rate, _per_byte(within, topology.link_bytes_per_s))
    else:
        volume = lower_bound(cluster.machines, cluster.nic.per_machine).volume / 2
        shared = _shared(cluster, cluster.machines - 1)
        rate = max(_per_byte(volume, cluster.nic.bytes_per_s), shared)
    return Synchronisation("any", 0, AffineCost(0, rate))


def undominated(options: Iterable[Synchronisation]) -> tuple[Synchronisation, ...]:
    """Return the algorithms that no other one undercuts for all sizes, one for each cost."""
    cheapest: list[Synchronisation] = []
    by_startup = sorted(
        options, key=lambda option: (option.half.startup_ns, option.half.ns_per_byte)
    )
    for option in by_startup:
        if not cheapest or option.half.ns_per_byte < cheapest[-1].half.ns_per_byte:
            cheapest.append(option)
    return tuple(cheapest)


def _on(cluster: Cluster, name: str) -> Synchronisation:
    topology, nic = cluster.topology, cluster.nic
    if isinstance(topology, Rails):
        return _on_rails(topology, cluster, name)
    if isinstance(topology, BCube):
        cost: Cost = collective(f"{name}_bcube", topology)
        rate = _per_byte(cost.volume / 2, nic.bytes_per_s)
    else:
        cost = _on_fabric(cluster, name)
        rate = Fraction(0)
        for sent, crossing in _phases(cost, name, cluster.machines):
            each = _per_byte(sent, nic.bytes_per_s * nic.per_machine)
            rate += max(each, _shared(cluster, crossing))
    startup = cost.steps // 2 * nic.startup_ns + _further(cluster, name) * nic.message_ns
    return Synchronisation(name, cost.steps, AffineCost(startup, rate))


def _further(cluster: Cluster, name: str) -> int:
    """Return how many messages a NIC sends in one half beside the first of each step."""
    topology = cluster.topology
    groups: tuple[int, ...] = (cluster.machines,)  # within which all exchange with all
    if isinstance(topology, BCube):
        groups = (topology.n,) * topology.k
    elif isinstance(topology, FatTree) and name == "hierarchical":
        groups = tree_groups(cluster.machines, topology)
    direct = name in ("bml", "hierarchical", "ps", "shuffle")
    return sum(max(size - 2, 0) for size in groups) if direct else 0


def _on_fabric(cluster: Cluster, name: str) -> Cost:
    topology, machines = cluster.topology, cluster.machines
    fabric = Fabric(machines, topology.ports if isinstance(topology, FatTree) else machines)
    match name:
        case "ring":
            return ring_fattree(fabric)
        case "halving_doubling":
            return halving_doubling_fattree(fabric)
        case "ps":
            return ps_fattree(fabric)
        case "shuffle":
            return shuffle_fattree(fabric)
        case "hierarchical" if isinstance(topology, FatTree):
            return hierarchical_cost(tree_groups(machines, topology))
        case "hierarchical":
            raise NotApplicableError("topology", "a single switch has no levels")
    raise NotApplicableError("topology", f"{name} is for servers with a NIC at each level: a bcube")


def _on_rails(rails: Rails, cluster: Cluster, name: str) -> Synchronisation:
    if name not in RAILS:
        raise NotApplicableError(
            "topology", f"{name} is for servers with a NIC at each level: a bcube"
        )
    startup, rate, steps = 0, Fraction(0), 0
    for hop in RAILS[name](rails):
        nic = _per_byte(hop.nic, cluster.nic.bytes_per_s)
        startup += hop.steps * (cluster.nic.startup_ns if nic else rails.link_startup_ns)
        startup += hop.further * cluster.nic.message_ns if nic else 0
        rate += max(nic, _per_byte(hop.link, rails.link_bytes_per_s))
        steps += 2 * hop.steps
    return Synchronisation(name, steps, AffineCost(startup, rate))


def _per_byte(volume: Fraction, bytes_per_s: Fraction) -> Fraction:
    return volume * _SECOND / bytes_per_s


def _phases(cost: Cost, name: str, machines: int) -> tuple[tuple[Fraction, int], ...]:
    """Return what the busiest machine sends in each phase of a half, and what all of them do.

    All machines send alike, but for those too many for halving and doubling, which send first.
    """
    core = 1 << machines.bit_length() - 1
    if name != "halving_doubling" or core == machines:
        return ((cost.volume / 2, machines - 1),)
    return (Fraction(1), machines - core), (Fraction(core - 1, core), core - 1)


def _shared(cluster: Cluster, crossing: int) -> Fraction:
    """Return the time it takes that so many times a byte cross what all machines share."""
    if cluster.shared_bytes_per_s is None:
        return Fraction(0)
    return _per_byte(Fraction(crossing), cluster.shared_bytes_per_s)
