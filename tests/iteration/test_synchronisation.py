"""What a push costs is what a replay counts: steps, messages of a NIC, and its bytes."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings

from planner.families.collectives.exchange import tree_groups
from planner.families.collectives.ring import gray_cycle
from planner.families.iteration.synchronisation import least, synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.topologies import BCube, FatTree, Rails, Switch, Topology
from tests.collectives import algorithms
from tests.collectives.replay import Replay, Transfer
from tests.iteration.iteration_strategies import clusters

SECOND = 10**9


class Counting(Replay):
    """A replay that remembers what was sent in each step."""

    def __init__(self, servers: int, linked: Callable[[int, int, int], bool]) -> None:
        super().__init__(servers, linked)
        self.log: list[list[Transfer]] = []

    def step(self, transfers: Iterable[Transfer]) -> None:
        self.log.append(list(transfers))
        super().step(self.log[-1])


def halves(replay: Replay, cluster: Cluster) -> list[tuple[int, Fraction]]:
    """Start-up cost and time per byte of the gradient of both halves, step by step."""
    assert isinstance(replay, Counting)
    middle = len(replay.log) // 2
    return [_of(steps, cluster) for steps in (replay.log[:middle], replay.log[middle:])]


def _of(steps: list[list[Transfer]], cluster: Cluster) -> tuple[int, Fraction]:
    nic = cluster.nic
    # On a switch every message is cut in as many pieces as a machine has NICs.
    stripes = 1 if isinstance(cluster.topology, BCube) else nic.per_machine
    startup, rate = 0, Fraction(0)
    for step in steps:
        out: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
        into: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
        partners: dict[tuple[int, int], set[int]] = defaultdict(set)
        for one in step:
            out[one.sender, one.nic] += one.size / stripes
            into[one.receiver, one.nic] += one.size / stripes
            partners[one.sender, one.nic].add(one.receiver)
        busiest = max(*out.values(), *into.values()) * SECOND / nic.bytes_per_s
        if cluster.shared_bytes_per_s is not None:
            everything = sum(one.size for one in step)
            busiest = max(busiest, everything * SECOND / cluster.shared_bytes_per_s)
        rate += busiest
        startup += nic.startup_ns + nic.message_ns * (max(map(len, partners.values())) - 1)
    return startup, rate


def replayed(cluster: Cluster, name: str) -> Replay:
    """Replay one of the algorithms on a switch, a Fat-Tree or a BCube."""
    topology, machines = cluster.topology, cluster.machines
    if isinstance(topology, BCube):
        match name:
            case "ring":
                return algorithms.ring(list(gray_cycle(topology)), topology)
            case "halving_doubling":
                return algorithms.halving_doubling(machines, topology)
            case "hierarchical":
                return algorithms.one_thread(topology)
            case "bml":
                return algorithms.bml(topology)
        return algorithms.routed(topology)
    if name == "ring":
        return algorithms.ring(range(machines), None)
    if name == "halving_doubling":
        core = machines & (machines - 1) == 0
        return algorithms.halving_doubling(machines) if core else algorithms.bruck(machines)
    if name == "hierarchical":
        assert isinstance(topology, FatTree)
        groups = tree_groups(machines, topology)
        assert prod(groups) == machines
        assert max(groups[:2]) <= topology.ports // 2
        return algorithms.in_groups(groups)
    return algorithms.direct(machines)


def cluster_on(topology: Topology, machines: int, per_machine: int = 1, **more: Any) -> Cluster:
    if isinstance(topology, BCube):
        per_machine = topology.k
    if isinstance(topology, Rails):
        per_machine = topology.accelerators
    nic = Nic(Fraction(10**9, 3), 7, per_machine, 2)
    return Cluster("c", "a test", machines, topology, nic, **more)


SHARED = Fraction(5 * 10**8)
CLUSTERS = [
    *(cluster_on(Switch(n), n) for n in (2, 3, 5, 8)),
    *(cluster_on(Switch(n), n, per_machine=3) for n in (4, 5)),
    *(cluster_on(Switch(n), n, shared_bytes_per_s=SHARED) for n in (2, 3, 4, 6)),
    *(cluster_on(Switch(n), n, shared_bytes_per_s=SHARED, per_machine=2) for n in (3, 6, 7)),
    *(cluster_on(FatTree(4), n) for n in (2, 6, 7, 12, 16)),
    cluster_on(FatTree(4), 12, shared_bytes_per_s=4 * SHARED),
    cluster_on(FatTree(6), 18),
    *(cluster_on(BCube(n, k), n**k) for n, k in ((2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3))),
]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda one: f"{one.topology}-{one.machines}")
def test_both_halves_are_what_a_replay_counts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "Replay", Counting)
    found, left_out = synchronisations(cluster)
    assert {one.algorithm for one in found} | {name for name, _ in left_out} == {
        "ring", "halving_doubling", "hierarchical", "ps", "shuffle", "bml",
    }  # fmt: skip
    for one in found:
        replay = replayed(cluster, one.algorithm)
        assert one.steps == replay.steps, one.algorithm
        for startup, rate in halves(replay, cluster):
            assert (one.half.startup_ns, one.half.ns_per_byte) == (startup, rate), one.algorithm


EVERYWHERE = {"ring", "ps", "shuffle"}


@pytest.mark.parametrize(
    ("topology", "machines", "more"),
    [
        (Switch(6), 6, {"halving_doubling"}),
        (FatTree(4), 6, {"halving_doubling", "hierarchical"}),
        (BCube(3, 2), 9, {"hierarchical", "bml"}),
        (BCube(4, 2), 16, {"halving_doubling", "hierarchical", "bml"}),
        (Rails(3, 4, Fraction(10**9)), 3, {"hierarchical"}),
        (Rails(4, 2, Fraction(10**9)), 4, {"halving_doubling", "hierarchical"}),
    ],
)
def test_what_a_topology_allows(topology: Topology, machines: int, more: set[str]) -> None:
    found, left_out = synchronisations(cluster_on(topology, machines))
    assert {one.algorithm for one in found} == EVERYWHERE | more
    assert all(reason for _, reason in left_out)


@settings(max_examples=40)
@given(clusters())
def test_nothing_undercuts_the_least(cluster: Cluster) -> None:
    lowest = least(cluster).half
    assert lowest.startup_ns == 0
    found, _ = synchronisations(cluster)
    assert found
    for one in found:
        assert one.half.ns_per_byte >= lowest.ns_per_byte
        assert one.steps % 2 == 0 or one.algorithm == "bml_rounds"
        if one.depth == 1:
            # Rounds may be odd: half a nanosecond is rounded up.
            odd = one.all_reduce.startup_ns % 2 if one.algorithm == "bml_rounds" else 0
            assert one.all_reduce.startup_ns == 2 * one.half.startup_ns - odd
            assert one.all_reduce.ns_per_byte == 2 * one.half.ns_per_byte
        else:  # the second half begins before the first one has ended
            assert one.all_reduce.ns_per_byte <= 2 * one.half.ns_per_byte
            assert one.all_reduce.ns_per_byte >= 2 * lowest.ns_per_byte


@settings(max_examples=40)
@given(clusters(single=False))
def test_faster_networks_are_faster(cluster: Cluster) -> None:
    """Twice the speed of everything halves the time of a byte, and leaves start-ups alone."""
    nic, topology, shared = cluster.nic, cluster.topology, cluster.shared_bytes_per_s
    if isinstance(topology, Rails):
        topology = replace(topology, link_bytes_per_s=2 * topology.link_bytes_per_s)
    twice = replace(
        cluster,
        nic=replace(nic, bytes_per_s=2 * nic.bytes_per_s),
        topology=topology,
        shared_bytes_per_s=None if shared is None else 2 * shared,
    )
    known = (synchronisations(each)[0] for each in (cluster, twice))
    for one, other in zip(*known, strict=True):
        assert other.half.ns_per_byte * 2 == one.half.ns_per_byte
        assert other.half.startup_ns == one.half.startup_ns


def test_a_single_worker_synchronises_nothing() -> None:
    for topology in (Switch(1), FatTree(2), Rails(1, 1, Fraction(10**9))):
        cluster = Cluster("c", "a test", 1, topology, Nic(Fraction(10**9), 5))
        ((only,), _) = synchronisations(cluster)
        assert (only.algorithm, only.steps) == ("none", 0)
        assert only.all_reduce.cost_ns(10**6) == least(cluster).half.cost_ns(10**6) == 0
