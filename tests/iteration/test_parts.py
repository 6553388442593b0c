"""Parts of a cluster that communicate at the same time: all together keep to every link's rate."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import Layer, Profile, Provenance, read_cluster
from planner.families.iteration.fsdp_from_profile import (
    costs_of_part,
    meshes_of,
    sharded_problem,
)
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.measured import Measured, MeasuredNetwork
from planner.model.topologies import FatTree, Rails, Switch
from planner.testing.strategies import clusters, rates
from tests.formats.refused import refused
from tests.iteration.making import on_switch

SECOND = 10**9

Groups = Sequence[Sequence[int]]


def on_rails(hosts: int, accelerators: int, *, link: int = 90, nic: int = 1) -> Cluster:
    rails = Rails(hosts, accelerators, Fraction(link * SECOND), 2)
    return Cluster("c", "a test", hosts, rails, Nic(Fraction(nic * SECOND), 10, accelerators))


@st.composite
def parted(draw: st.DrawFn) -> tuple[Cluster, int]:
    """Draw a cluster, and by how many ranks to shard."""
    cluster = draw(
        clusters(machines=12).filter(lambda one: isinstance(one.topology, Rails | Switch))
    )
    if isinstance(cluster.topology, Switch) and draw(st.booleans()):
        cluster = replace(cluster, shared_bytes_per_s=draw(rates))
    workers, size = cluster.workers, cluster.workers_per_host
    divisors = [count for count in range(1, workers + 1) if not workers % count]
    whole = [count for count in divisors if not count % size or not size % count]
    return cluster, draw(st.sampled_from(whole))


def groups_of(workers: int, shards: int) -> tuple[Groups, Groups]:
    """Return the ranks of each copy of the model, and those that hold the same share."""
    copies = [range(start, start + shards) for start in range(0, workers, shards)]
    return copies, [range(place, workers, shards) for place in range(shards)]


def loads(cluster: Cluster, groups: Groups) -> dict[str, Fraction]:
    """Return the ns a byte for which links are busy at least if all groups gather at once.

    Whatever the algorithm: every rank gets what the others of its group have, every host what its
    ranks do not have, and a shared medium carries all of it.
    """
    topology, nic = cluster.topology, cluster.nic
    count = len(groups[0])
    share = Fraction(1, count)
    busy = {}
    if isinstance(topology, Rails):
        size = topology.accelerators
        ports = topology.link_bytes_per_s + (nic.bytes_per_s if topology.hosts > 1 else 0)
        inwards = []
        for host in range(topology.hosts):
            mine = range(host * size, (host + 1) * size)
            here = [sum(rank in mine for rank in group) for group in groups]
            inwards.append(sum((count - some) * share for some in here if some))
        busy["host"] = max(inwards) * SECOND / (size * nic.bytes_per_s)
    else:
        ports = nic.bytes_per_s * nic.per_machine
    busy["rank"] = (count - 1) * share * SECOND / ports
    if cluster.shared_bytes_per_s is not None:
        everything = Fraction(len(groups) * (count - 1))
        busy["shared"] = everything * SECOND / cluster.shared_bytes_per_s
    return busy


SHARING = on_switch(72, 10, shared_bytes_per_s=Fraction(8 * SECOND))


@settings(max_examples=300)
@given(parted(), st.integers(1, 10**6))
@example((SHARING, 9), 10**6)
@example((on_rails(1, 8), 4), 10**6)
@example((on_rails(4, 4, link=1, nic=9), 2), 10**6)
def test_all_parts_together_keep_to_every_rate(drawn: tuple[Cluster, int], size: int) -> None:
    cluster, shards = drawn
    host, replicas = cluster.workers_per_host, cluster.workers // shards
    copies, rows = groups_of(cluster.workers, shards)
    for costs, groups in (
        (costs_of_part(cluster, shards, min(shards, host)), copies),
        (costs_of_part(cluster, replicas, max(host // shards, 1)), rows),
    ):
        gather, scatter, both = (cost.cost_ns(size) for cost in costs)
        for link, busy in loads(cluster, groups).items():
            assert min(gather, scatter) >= busy * size, link
            assert both >= 2 * busy * size, link


def slow_medium(machines: int, **fields: Any) -> Cluster:
    return on_switch(machines, 10, shared_bytes_per_s=Fraction(SECOND), **fields)


LINKS = AffineCost(6, Fraction(1, 120))


@pytest.mark.parametrize(
    ("cluster", "shards", "gather", "both", "own_links"),
    [
        # Three steps of 100 ns, and three quarters of the bytes at a byte a nanosecond.
        (on_switch(4, 100), 4, AffineCost(300, Fraction(3, 4)), None, True),
        # Eight copies of nine send 64 models in a half, nine rows of eight 7/9 of a share each.
        (slow_medium(72), 9, AffineCost(80, Fraction(64)), AffineCost(140, Fraction(126)), False),
        # Rows within hosts take links: the gathers take the same.
        (on_rails(1, 8), 4, LINKS, AffineCost(4, Fraction(1, 90)), False),
        # Six ranks of three hosts, over two NICs of each.
        (on_rails(3, 8), 4, LINKS, AffineCost(100, Fraction(5, 6)), False),
        # Over NVLink: seven steps of 3.4 µs, seven eighths of the bytes at 450 GB/s. Among 32
        # hosts over a NIC each: 62 steps of 14 µs at 50 GB/s.
        (
            read_cluster("h100-32"),
            8,
            AffineCost(7 * 3400, Fraction(7, 8) / 450),
            AffineCost(62 * 14_000, Fraction(2 * 31, 32) / 50),
            True,
        ),
    ],
)
def test_meshes_by_hand(
    cluster: Cluster, shards: int, gather: AffineCost, both: AffineCost | None, own_links: bool
) -> None:
    (mesh,) = meshes_of(cluster, [shards])
    assert (mesh.shards, mesh.ranks) == (shards, cluster.workers)
    assert mesh.all_gather == mesh.reduce_scatter == gather
    assert mesh.all_reduce == both
    if both is not None:
        assert mesh.own_links == own_links


def test_meshes_are_those_of_hosts_by_default_or_of_what_was_measured() -> None:
    meshes = meshes_of(read_cluster("h100-32"))
    assert [mesh.shards for mesh in meshes] == [256, 128, 64, 32, 16, 8]
    measured = read_cluster("h100ib-10")
    (mesh, *_) = meshes_of(measured)
    assert mesh.shards == measured.workers
    assert mesh.gather_ns(10**9) > mesh.gather_ns(10**6)
    assert len(meshes_of(on_switch(6, 10, network=MEASURED), [3])) == 1
    assert len(meshes_of(SHARED, [6])) == 1


TABLE = ((10**3, 10**4), (10**6, 10**6))
MEASURED = MeasuredNetwork(
    tuple(
        Measured(name, 6, per_host, TABLE)
        for name in ("all_gather", "reduce_scatter")
        for per_host in (1, 6)
    )
)
SHARED = slow_medium(6, network=MEASURED)
TREE = Cluster("c", "a test", 16, FatTree(4), Nic(Fraction(SECOND), 10))


@pytest.mark.parametrize(
    ("cluster", "shards", "path", "message"),
    [
        (on_switch(4, 100), [3], "shards[0]", "expected a divisor of 4 ranks"),
        (on_switch(4, 100), [4, 0], "shards[1]", "expected a divisor of 4 ranks"),
        (on_rails(3, 8), [6], "shards", "straddle hosts of 8 accelerators"),
        (on_rails(3, 8), [12], "shards", "straddle hosts of 8 accelerators"),
        (SHARED, [3], "shards", "of one group alone"),
        (TREE, [1], "shards", "no part of this topology"),
        (TREE, [4], "shards", "no part of this topology"),
    ],
)
def test_meshes_that_are_refused(
    cluster: Cluster, shards: list[int], path: str, message: str
) -> None:
    with refused(path, message):
        meshes_of(cluster, shards)


def test_people_wrap_what_is_numbered_and_what_is_between() -> None:
    names = ("tokens", "positions", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "norm", "head")
    layers = tuple(Layer(name, 10, 20, 8, activation_bytes=4) for name in names)
    profile = Profile("tiny", layers, Provenance("synthetic", "a test"))
    problem = sharded_problem(profile, read_cluster("office-4"), recompute=True)
    assert problem.blocks == (0, 2, 4, 6)
    assert problem.checkpoint_bytes == (0, *[4] * 7)  # the output of the layer before
