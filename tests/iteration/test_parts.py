"""Parts of a cluster that communicate at the same time: all together keep to every link's rate."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import Layer, Profile, Provenance
from planner.families import fsdp
from planner.families.iteration.fsdp_from_profile import (
    costs_of_part,
    meshes_of,
    sharded_problem,
)
from planner.model.clusters import Cluster, Nic
from planner.model.costs import AffineCost
from planner.model.errors import NotApplicableError
from planner.model.measured import Measured, MeasuredNetwork
from planner.model.topologies import FatTree, Rails, Switch
from planner.testing.strategies import clusters, rates

SECOND = 10**9

Groups = Sequence[Sequence[int]]


def on_switch(machines: int, shared: int | None = None, **more: int) -> Cluster:
    nic = Nic(Fraction(SECOND), 10, **more)
    rate = None if shared is None else Fraction(shared)
    return Cluster("c", "a test", machines, Switch(machines), nic, shared_bytes_per_s=rate)


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


def copies_of(cluster: Cluster, shards: int) -> Groups:
    return [range(start, start + shards) for start in range(0, cluster.workers, shards)]


def rows_of(cluster: Cluster, shards: int) -> Groups:
    return [range(place, cluster.workers, shards) for place in range(shards)]


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


@settings(max_examples=300)
@given(parted(), st.integers(1, 10**6))
@example((on_switch(72, 8 * SECOND), 9), 10**6)
@example((on_rails(1, 8), 4), 10**6)
@example((on_rails(4, 4, link=1, nic=9), 2), 10**6)
def test_all_parts_together_keep_to_every_rate(drawn: tuple[Cluster, int], size: int) -> None:
    cluster, shards = drawn
    host, replicas = cluster.workers_per_host, cluster.workers // shards
    for costs, groups in (
        (costs_of_part(cluster, shards, min(shards, host)), copies_of(cluster, shards)),
        (costs_of_part(cluster, replicas, max(host // shards, 1)), rows_of(cluster, shards)),
    ):
        gather, scatter, both = (cost.cost_ns(size) for cost in costs)
        for link, busy in loads(cluster, groups).items():
            assert min(gather, scatter) >= busy * size, link
            assert both >= 2 * busy * size, link


@settings(max_examples=100)
@given(parted(), st.lists(st.integers(1, 1000), min_size=1, max_size=3), st.integers(0, 200))
@example((on_switch(72, 8 * SECOND), 9), [527, 13], 2)
@example((on_rails(4, 8, link=1, nic=2), 4), [527, 13], 2)
def test_an_iteration_keeps_to_every_rate(
    drawn: tuple[Cluster, int], sizes: list[int], compute: int
) -> None:
    """It gathers, scatters and sums up all bytes once at least, on links that all of it shares."""
    cluster, shards = drawn
    layers = tuple(
        Layer(name=str(place), forward_ns=compute, backward_ns=compute, parameter_bytes=size)
        for place, size in enumerate(sizes)
    )
    profile = Profile("tiny", layers, Provenance(kind="synthetic", source="a test"))
    problem = sharded_problem(profile, cluster, shards=[shards], ignore_memory=True)
    lasts = fsdp.solve(problem, method="search").objective_ns
    assert lasts is not None
    within, between = (loads(cluster, groups(cluster, shards)) for groups in (copies_of, rows_of))
    for link, busy in within.items():
        assert lasts >= 2 * sum(sizes) * (busy + between[link] / shards), link


def test_copies_share_what_machines_share() -> None:
    """Eight copies of nine send 64 models in a half, nine rows of eight 7/9 of a share each."""
    (mesh,) = meshes_of(on_switch(72, SECOND), [9])
    assert mesh.all_gather == mesh.reduce_scatter == AffineCost(80, Fraction(64))
    assert mesh.all_reduce == AffineCost(140, Fraction(2 * 9 * 7))
    assert not mesh.own_links


@pytest.mark.parametrize("shards", [6, 12])
def test_copies_do_not_straddle_hosts(shards: int) -> None:
    with pytest.raises(NotApplicableError, match="straddle hosts of 8 accelerators") as refused:
        meshes_of(on_rails(3, 8), [shards])
    assert refused.value.path == "shards"
    (four,) = meshes_of(on_rails(3, 8), [4])
    assert four.all_gather == AffineCost(3 * 2, Fraction(3, 4) / 90)


def test_rows_within_hosts_take_links() -> None:
    (mesh,) = meshes_of(on_rails(1, 8), [4])
    assert mesh.all_reduce == AffineCost(2 * 2, Fraction(1, 90))
    assert not mesh.own_links  # the gathers take the same
    assert meshes_of(on_rails(2, 8), [8])[0].own_links


def test_what_was_not_measured_is_refused() -> None:
    table = ((10**3, 10**4), (10**6, 10**6))
    tables = tuple(
        Measured(name, 6, per_host, table)
        for name in ("all_gather", "reduce_scatter")
        for per_host in (1, 6)
    )
    network = MeasuredNetwork(tables)
    nic = Nic(Fraction(SECOND), 10)
    alone = Cluster("c", "a test", 6, Switch(6), nic, network=network)
    assert len(meshes_of(alone, [3])) == 1
    shared = Cluster(
        "c", "a test", 6, Switch(6), nic, network=network, shared_bytes_per_s=Fraction(SECOND)
    )
    assert len(meshes_of(shared, [6])) == 1
    with pytest.raises(NotApplicableError, match="of one group alone"):
        meshes_of(shared, [3])
    tree = Cluster("c", "a test", 16, FatTree(4), nic)
    for shards in (1, 4):
        with pytest.raises(NotApplicableError, match="no part of this topology"):
            meshes_of(tree, [shards])
