"""What a push costs is what a replay counts: steps, messages of a NIC, and its bytes."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings

from planner.families.bml.program import made
from planner.families.collectives.program import KINDS
from planner.families.iteration.synchronisation import least, recipe_on, synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.topologies import BCube, FatTree, Rails, Switch, Topology
from tests.collectives.pricing import half_of
from tests.iteration.iteration_strategies import clusters


def cluster_on(topology: Topology, machines: int, per_machine: int = 1, **more: Any) -> Cluster:
    if isinstance(topology, BCube):
        per_machine = topology.k
    if isinstance(topology, Rails):
        per_machine = topology.accelerators
    nic = Nic(Fraction(10**9, 3), 7, per_machine, 2)
    return Cluster("c", "a test", machines, topology, nic, **more)


SHARED = Fraction(5 * 10**8)
RAILS = [
    Rails(hosts, size, link, link_startup_ns=3)
    for link in (Fraction(10**10), Fraction(10**8, 3))
    for hosts, size in ((1, 4), (3, 1), (2, 2), (3, 2), (4, 2), (5, 2), (2, 3), (3, 4), (4, 4))
]
CLUSTERS = [
    *(cluster_on(Switch(n), n) for n in (2, 3, 5, 8)),
    *(cluster_on(Switch(n), n, per_machine=3) for n in (4, 5)),
    *(cluster_on(Switch(n), n, shared_bytes_per_s=SHARED) for n in (2, 3, 4, 6)),
    *(cluster_on(Switch(n), n, shared_bytes_per_s=SHARED, per_machine=2) for n in (3, 6, 7)),
    *(cluster_on(FatTree(4), n) for n in (2, 6, 7, 12, 16)),
    cluster_on(FatTree(4), 12, shared_bytes_per_s=4 * SHARED),
    cluster_on(FatTree(6), 18),
    *(cluster_on(rails, rails.hosts) for rails in RAILS),
    *(cluster_on(BCube(n, k), n**k) for n, k in ((2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3))),
]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda one: f"{one.topology}-{one.machines}")
def test_both_halves_are_what_messages_add_up_to(cluster: Cluster) -> None:
    found, left_out = synchronisations(cluster)
    assert {one.algorithm for one in found} | {name for name, _ in left_out} == {
        "ring", "halving_doubling", "hierarchical", "ps", "shuffle", "bml",
    }  # fmt: skip
    for one in found:
        if one.depth > 1:
            continue
        program = made(recipe_on(cluster, one.algorithm))
        for kind in KINDS[1:]:
            half = half_of(program.half(kind), cluster)
            assert one.steps == 2 * half.steps, one.algorithm
            assert (one.half.startup_ns, one.half.ns_per_byte) == half[1:], one.algorithm


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


def test_a_single_worker_synchronises_nothing() -> None:
    for topology in (Switch(1), FatTree(2), Rails(1, 1, Fraction(10**9))):
        cluster = Cluster("c", "a test", 1, topology, Nic(Fraction(10**9), 5))
        ((only,), _) = synchronisations(cluster)
        assert (only.algorithm, only.steps) == ("none", 0)
        assert only.all_reduce.cost_ns(10**6) == least(cluster).half.cost_ns(10**6) == 0


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
