"""The cost of each synchronisation algorithm on a cluster.

Problem: the time of an all-reduce, push (reduce-scatter) or pull (all-gather) by its bytes.
Method: steps times the start-up, and the busiest NIC's bytes over its speed, as in
`planner.collectives`; details in docs/iteration.md, "Why both halves cost the same". With failures
`bml` is its re-plan. On a measured network: `planner.families.iteration.measured`.
Guarantee: exact for pieces that divide evenly. `least` bounds every algorithm: a half has half the
volume bound of `planner.families.collectives.cost`.
Complexity: O(steps · depth²) per algorithm on rails, O(1) elsewhere.
Source: Wang et al., "BML", NeurIPS 2018, §2-3 (costs); Patarasuk and Yuan, JPDC 2009 (ring, bound);
halves: Zhang et al., "DeAR", ICDCS 2023, and Rajbhandari et al., "ZeRO", SC 2020.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from planner.families.bml.methods import infeasibility_of
from planner.families.bml.program import REPLAN, replanned
from planner.families.bml.reroute import Damage
from planner.families.collectives import RAILS, collective, lower_bound
from planner.families.collectives.cost import Cost, Fabric
from planner.families.collectives.exchange import direct_on, hierarchical_cost, tree_groups
from planner.families.collectives.program import Kind
from planner.families.collectives.rails import RailSteps
from planner.families.collectives.recipes import Recipe
from planner.families.collectives.ring import bruck_cost, gray_cycle, ring_on
from planner.families.iteration.measured import KINDS, measured_on, prediction
from planner.families.iteration.plan import BML, IN_ROUNDS, MEASURED, MIXED, Synchronisation
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost, least_rate
from planner.model.errors import NotApplicableError
from planner.model.topologies import BCube, Failures, FatTree, Rails
from planner.model.validation import MAX_VALUE
from planner.solving.result import Infeasibility

DEPTHS = (1, 2, 4, 8)
"""Depths considered, up to Caramel's."""

ALGORITHMS = ("ring", "halving_doubling", "hierarchical", "ps", "shuffle", "bml", MIXED)
"""Every algorithm by the name requests use; of equally fast ones the first is taken."""

KNOWN = (*ALGORITHMS, IN_ROUNDS, MEASURED)
"""Every algorithm that can be requested; `MEASURED` is the default if the network was measured."""

NONE = "none"
"""The algorithm of a single worker."""

_FOR_BCUBES = "{} is for servers with a NIC at each level: a bcube"


@lru_cache(maxsize=16)  # a plan is made for a dozen problems that differ in computation alone
def synchronisations(
    cluster: Cluster, algorithms: tuple[str, ...] = ALGORITHMS
) -> tuple[tuple[Synchronisation, ...], tuple[tuple[str, str], ...]]:
    """Return the algorithms that can be used on a cluster, and the others with the reason."""
    if cluster.workers == 1:
        return (Synchronisation(NONE, 0, AffineCost(0, Fraction(0))),), ()
    usable, left_out = [], []
    if cluster.failed and "bml" in algorithms:
        algorithms = tuple(dict.fromkeys((*algorithms, IN_ROUNDS)))
    for name in algorithms:
        if name == MIXED:
            continue
        try:
            if cluster.failed and name not in BML:
                _refuse_broken(cluster, name)
            usable += _on(cluster, name)
        except NotApplicableError as error:
            left_out.append((name, error.message))
    return tuple(usable), tuple(left_out)


def recipe_on(cluster: Cluster, algorithm: str) -> Recipe:
    """Return the recipe for the program of an algorithm that can be used on a cluster.

    Machines with several NICs on a switch are one rank with one link: a transfer uses all NICs.
    After failures the remaining servers are the ranks, in order.
    """
    topology, machines = cluster.topology, cluster.machines
    if algorithm == MEASURED:  # unknown: rings, which every library has
        algorithm = "ring"
    name = "direct" if algorithm in ("ps", "shuffle") else algorithm
    if cluster.workers == 1:
        return Recipe("ring", (1,))
    if isinstance(topology, Rails):
        rails = "ps" if name == "direct" else name
        return Recipe(f"{rails}_rails", (topology.hosts, topology.accelerators))
    if cluster.failed and algorithm in BML:
        assert isinstance(topology, BCube)
        rounds = (ROUNDS,) if algorithm == IN_ROUNDS else ()
        return Recipe(REPLAN, (topology.n, topology.k, *rounds), cluster.failed)
    if isinstance(topology, BCube):
        on_bcube = {"bml": "bml", "direct": "routed_bcube"}.get(name, f"{name}_bcube")
        return Recipe(on_bcube, (topology.n, topology.k))
    if name == "hierarchical" and isinstance(topology, FatTree):
        return Recipe(name, tree_groups(machines, topology))
    if name == "halving_doubling" and machines & (machines - 1):
        return Recipe("bruck", (machines,))
    return Recipe(name, (machines,))


def least(cluster: Cluster) -> Synchronisation:
    """Return a lower bound on the cost of every algorithm: no start-ups, and the least volume."""
    topology = cluster.topology
    if cluster.workers == 1:
        return Synchronisation(NONE, 0, AffineCost(0, Fraction(0)))
    if isinstance(topology, Rails):
        between = lower_bound(topology.hosts, topology.accelerators).volume / 2
        within = lower_bound(topology.servers).volume / 2 if topology.hosts == 1 else Fraction(0)
        rate = _per_byte(between, cluster.nic.bytes_per_s)
        rate = max(rate, _per_byte(within, topology.link_bytes_per_s))
    elif cluster.failed:
        volume = Fraction(0) if cut_off(cluster) else _damage(cluster).load_bound() / 2
        rate = _per_byte(volume, cluster.nic.bytes_per_s)
    else:
        volume = lower_bound(cluster.machines, cluster.nic.per_machine).volume / 2
        rate = max(_per_byte(volume, cluster.nic.bytes_per_s), _shared(cluster))
    if cluster.network is None or cluster.failed:
        return Synchronisation("any", 0, AffineCost(0, rate))
    both, *halves = (least_rate(prediction(cluster, kind).cost, MAX_VALUE) for kind in KINDS)
    whole = AffineCost(0, min(2 * rate, both))
    return Synchronisation("any", 0, AffineCost(0, min(rate, *halves)), whole=whole)


def _on(cluster: Cluster, name: str) -> list[Synchronisation]:
    """Return an algorithm at every depth that may be useful."""
    topology, nic = cluster.topology, cluster.nic
    if name == MEASURED:
        return [measured_on(cluster)]
    if name == IN_ROUNDS and not cluster.failed:
        raise NotApplicableError("failed", "nothing has failed")
    if isinstance(topology, Rails):
        return _on_rails(topology, cluster, name)
    if cluster.failed and name in BML:
        assert isinstance(topology, BCube)
        whole = name == IN_ROUNDS
        around = _half_of_replan(topology, cluster.failed, ROUNDS if whole else 1)
        further = around.further * nic.message_ns
        startup = around.steps * nic.startup_ns + further
        rate = _per_byte(around.volume, nic.bytes_per_s)
        if whole:  # both halves overlap
            half, both = AffineCost(-(-startup // 2), rate / 2), AffineCost(startup, rate)
            steps, messages = around.steps, (-(-further // 2), further)
        else:
            half, both = AffineCost(startup, rate), AffineCost(2 * startup, 2 * rate)
            steps, messages = 2 * around.steps, (further, 2 * further)
        shared = around.shared
        return [Synchronisation(name, steps, half, 1, both, shared, messages_ns=messages)]
    if isinstance(topology, BCube):
        cost: Cost = collective(f"{name}_bcube", topology)
        rate = _per_byte(cost.volume / 2, nic.bytes_per_s)
    else:
        cost = _on_fabric(cluster, name)
        rate = _per_byte(cost.volume / 2, nic.bytes_per_s * nic.per_machine)
        rate = max(rate, _shared(cluster))
    further = _further(cluster, name) * nic.message_ns
    half = AffineCost(cost.steps // 2 * nic.startup_ns + further, rate)
    return [Synchronisation(name, cost.steps, half, messages_ns=(further, 2 * further))]


def _further(cluster: Cluster, name: str) -> int:
    """Return the messages of a NIC in one half after the first of each step."""
    topology = cluster.topology
    groups: tuple[int, ...] = (cluster.machines,)  # each exchanges all with all
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
            return ring_on(fabric)
        case "halving_doubling":
            return bruck_cost(machines)  # also the cost of halving-doubling at powers of two
        case "ps" | "shuffle":
            return direct_on(name, fabric)
        case "hierarchical" if isinstance(topology, FatTree):
            return hierarchical_cost(tree_groups(machines, topology))
        case "hierarchical":
            raise NotApplicableError("topology", "a single switch has no levels")
    raise NotApplicableError("topology", _FOR_BCUBES.format(name))


def _on_rails(rails: Rails, cluster: Cluster, name: str) -> list[Synchronisation]:
    if name not in RAILS:
        raise NotApplicableError("topology", _FOR_BCUBES.format(name))
    half = [_Step.of(hop, rails, cluster.nic) for hop in RAILS[name](rails)]
    known = [_in_parts(name, half, cluster.nic, depth) for depth in DEPTHS]
    # If all steps use the same links, parts only add start-ups.
    return [
        option
        for option in known
        if option.depth == 1 or option.half.ns_per_byte < known[0].half.ns_per_byte
    ]


class _Step(NamedTuple):
    """Some consecutive steps: their number, start-up, messages and loads."""

    steps: int
    startup_ns: int
    messages: int  # messages of a NIC in all steps
    link: Fraction  # ns per byte of the gradient on the busiest link …
    nic: Fraction  # … and NIC

    @classmethod
    def of(cls, hop: RailSteps, rails: Rails, nic: Nic) -> "_Step":
        crosses = _per_byte(hop.nic, nic.bytes_per_s)
        return cls(
            hop.steps,
            nic.startup_ns if crosses else rails.link_startup_ns,
            hop.steps + hop.further if crosses else 0,
            _per_byte(hop.link, rails.link_bytes_per_s),
            crosses,
        )


def _in_parts(name: str, half: Sequence[_Step], nic: Nic, depth: int) -> Synchronisation:
    """Return the cost of an algorithm in `depth` parts, each a step behind the one before.

    Steps in flight at once share links and NICs. Together they take the longest start-up, including
    the further messages of a NIC, and the time of the busier of links and NICs.
    """
    costs, further = [], []
    for steps in (half, [*half, *reversed(half)]):
        startup = gaps = 0
        rate = Fraction(0)
        for moment in range(len(steps) + depth - 1):
            now = steps[max(0, moment - depth + 1) : moment + 1]
            starts = max(step.steps for step in now)
            messages = sum(step.messages for step in now)
            startup += starts * max(step.startup_ns for step in now)
            gaps += max(messages - starts, 0) * nic.message_ns
            rate += max(sum(step.nic for step in now), sum(step.link for step in now))
        costs.append(AffineCost(startup + gaps, rate / depth))
        further.append(gaps)
    steps_of_all = 2 * sum(step.steps for step in half)
    return Synchronisation(
        name, steps_of_all, costs[0], depth, costs[1], messages_ns=(further[0], further[1])
    )


def _per_byte(volume: Fraction, bytes_per_s: Fraction) -> Fraction:
    return volume * 10**9 / bytes_per_s


def _shared(cluster: Cluster) -> Fraction:
    """Return the time per byte on the shared medium, over all senders (ns)."""
    if cluster.shared_bytes_per_s is None:
        return Fraction(0)
    return _per_byte(Fraction(cluster.machines - 1), cluster.shared_bytes_per_s)


# ---
# Algorithms on a BCube with failures.
#
# Problem: servers, NICs, links or switches have failed. Find the algorithms that still work, the
# cost of BML's re-plan, and a lower bound over all algorithms. Method: an algorithm works if all
# its messages use working links between working servers. All but the ring send over every NIC; the
# ring uses those along its cycle. The re-plan (`planner.families.bml.program`) is priced from its
# program: per step the busiest NIC's bytes and messages. Guarantee: exact for pieces that divide
# evenly. The bound is half that of `planner.families.bml.reroute`: docs/iteration.md, "Why the
# bounds hold". Complexity: that of the re-plan's program, once per cluster. Source: own.

ROUNDS = 16
"""Rounds of the re-plan in rounds (`bml_rounds`)."""


class _Half(NamedTuple):
    """The cost of one half of a program.

    `volume`: bytes over the busiest NIC, summed over the steps, as a share of the gradient.
    `further`: messages of the busiest NIC after the first of each step. `shared`: whether all ranks
    own equal shares of the sums.
    """

    steps: int
    volume: Fraction
    further: int
    shared: bool


def cut_off(cluster: Cluster) -> Infeasibility | None:
    """Return why the failures of a cluster make synchronisation impossible, or None."""
    if not cluster.failed:
        return None
    cut = infeasibility_of(_damage(cluster))
    if cut is None:
        return None
    return Infeasibility(cut.reason, tuple(f"cluster.{name}" for name in cut.binding))


def _refuse_broken(cluster: Cluster, name: str) -> None:
    """Raise `NotApplicableError` if an algorithm needs a server or a NIC that has failed."""
    damage, bcube = _damage(cluster), cluster.topology
    assert isinstance(bcube, BCube)

    def named(server: int) -> str:
        return f"server [{', '.join(map(str, bcube.digits(server)))}]"

    if damage.dead:
        raise NotApplicableError("failed", f"{named(min(damage.dead))} has failed")
    used: set[tuple[int, int]] | None = None
    if name == "ring":
        cycle = [*gray_cycle(bcube)]
        hops = [*pairwise(cycle), (cycle[-1], cycle[0])]
        used = {(end, bcube.wire(*hop)) for hop in hops for end in hop}
    for server, level in sorted(damage.down):
        if used is None or (server, level) in used:
            raise NotApplicableError(
                "failed",
                f"{named(server)} sends over its link of level {level}, which does not work",
            )


@lru_cache(maxsize=16)  # the same failures recur with other start-ups and sizes
def _half_of_replan(bcube: BCube, failed: Failures, rounds: int) -> _Half:
    """Return the cost of each half of BML's re-plan.

    A re-plan in several rounds has no halves: then the cost of the whole is returned. Raises
    `NotApplicableError` if there is no re-plan.
    """
    program, halves = replanned(bcube, failed, rounds), []
    kinds: tuple[Kind, ...] = ("reduce_scatter", "all_gather") if rounds == 1 else ("all_reduce",)
    for kind in kinds:
        carried: defaultdict[int, Counter[tuple[int, int, bool]]] = defaultdict(Counter)
        sent: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
        for step, _, sender, receiver, link, first, stop, *_ in program.half(kind).messages():
            carried[step][sender, link, True] += stop - first
            carried[step][receiver, link, False] += stop - first
            sent[step][sender, link] += 1
        busiest = sum(max(nics.values()) for nics in carried.values())
        messages = sum(max(nics.values()) - 1 for nics in sent.values())
        halves.append((len(carried), Fraction(busiest, program.chunks), messages))
    owned = Counter(map(program.owner, range(program.chunks)))
    shared = len(set(map(owned.__getitem__, range(program.ranks)))) == 1
    steps, volumes, further = zip(*halves, strict=True)
    return _Half(max(steps), max(volumes), max(further), shared and rounds == 1)


def _damage(cluster: Cluster) -> Damage:
    assert isinstance(cluster.topology, BCube)
    return Damage(cluster.topology, cluster.failed)
