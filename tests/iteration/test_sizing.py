"""Numbers of machines, groups of iterations on an engine, and parts that communicate at once.

Sizes are held against planning every one; parts together keep to every link's rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import read_cluster
from planner.families import drizzle
from planner.families.iteration import Problem, solve
from planner.families.iteration import sizing as module
from planner.families.iteration.fsdp_from_profile import (
    costs_of_part,
    meshes_of,
    sharded_problem,
)
from planner.families.iteration.sizing import (
    Sizing,
    choose_size,
    group_size,
    resized,
    scheduling_problem,
)
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.costs import AffineCost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.layers import Layer
from planner.model.measured import Measured, MeasuredNetwork
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, FatTree, Rails, Switch
from planner.testing import strategies as testing
from tests.iteration.iteration_strategies import clusters
from tests.iteration.making import chain, layered, on_switch
from tests.present import present

NIC = Nic(Fraction(10**9), 100)
FAST = Fraction(10**12)
ONE, SLOW = layered((1, 1, 1)), layered((2**60, 1, 1))
THREE, UNKNOWN = (layered((1, 1, 1), batch_size=size) for size in (3, None))


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    layer = st.tuples(st.integers(0, 50), st.integers(1, 90), st.integers(0, 200))
    layers = draw(st.lists(layer, min_size=1, max_size=3))
    return layered(*layers, (7, 9, draw(st.integers(1, 90))), batch_size=draw(st.integers(1, 3)))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    profiles(),
    clusters().filter(lambda one: not isinstance(one.topology, BCube)),
    st.integers(1, 40),
    st.sampled_from([{}, {"computation": Fraction(1, 7)}, {"max_transfer_bytes": 30}]),
)
def test_chosen_is_the_best_of_all_sizes(
    model: Profile, cluster: Cluster, samples: int, options: dict[str, Any]
) -> None:
    """Of all numbers of machines, those included that were not planned."""
    fixed = {**options, "op_order": tuple(op.name for op in model.dataflow().ops)}
    found = choose_size(model, cluster, samples, **fixed)
    epochs = {}
    for machines in range(1, cluster.machines + 1):
        smaller = resized(cluster, machines)
        objective = solve(Problem.from_profile(model, smaller, **fixed)).objective_ns
        if objective is not None:
            batch = (model.batch_size or 0) * smaller.workers
            epochs[machines] = ceil(Fraction(samples, batch)) * objective
    sizes = [candidate.machines for candidate in found.candidates]
    assert sizes == sorted(set(sizes))
    assert {1, cluster.machines} <= set(sizes)
    assert not found.timed_out
    assert present(found.chosen).machines == min(epochs, key=lambda size: (epochs[size], size))
    for one in found.candidates:
        assert present(one.bound_ns) <= epochs[one.machines]
        assert one.epoch_ns in {None, epochs[one.machines]}


def test_candidates_by_hand() -> None:
    """10 batches on up to 9 machines: 10, 5, 4, 3, 2, 2, 2, 2, 2 iterations."""
    found = choose_size(layered((500, 500, 1), batch_size=2), on_switch(9, 1), 20)
    # 5 machines are the fewest for 2 iterations; 6 to 8 have the least bounds behind it.
    assert [candidate.machines for candidate in found.candidates] == [1, 5, 6, 7, 8, 9]
    assert [candidate.iterations for candidate in found.candidates] == [10, 2, 2, 2, 2, 2]
    assert found.chosen is found.candidates[1]
    assert [one.result is None for one in found.candidates] == [True, False, *[True] * 4]


def test_a_slow_network_means_one_machine_also_without_layers() -> None:
    large = (1, 1, 10**6)
    alike = Profile("g", (), Provenance("synthetic", "a test"), 4, chain(large))
    for model in (layered(large), alike):
        found = choose_size(model, on_switch(4, 100), 1000)
        best = present(found.chosen)
        assert (best.machines, best.epoch_ns) == (1, 250 * 2)
        assert [one.iterations for one in found.candidates] == [250, 125, 84, 63]
        assert [one.result is None for one in found.candidates] == [False, True, True, True]


def test_memory() -> None:
    model = replace(layered((10, 10, 100)), layers=(Layer("l", 10, 10, 100, None, 50),))
    needed = 100 + 100 + 50  # and sharded, a 2-fold state and a copy, spread over the machines

    def choose(memory: int) -> Sizing:
        cluster = on_switch(4, 0, memory_bytes=memory)
        return choose_size(model, cluster, 40, optimiser=2, element_bytes=1)

    tight = choose(needed + 300 // 4 + 1)
    assert present(tight.chosen).machines == 4
    assert all(candidate.epoch_ns is None for candidate in tight.candidates[:-1])
    nothing = choose(needed)
    assert nothing.chosen is None
    assert present(nothing.infeasibility).binding == ("memory_bytes",)


def test_sizes_an_algorithm_cannot_have() -> None:
    rails = Cluster("r", "a test", 4, Rails(4, 2, FAST), Nic(FAST, 0, 2))
    choose = partial(choose_size, layered((500, 500, 8)), rails, algorithms=("halving_doubling",))
    assert present(choose(960).chosen).machines == 4
    # 3 hosts would make an epoch of 24 samples in one iteration, and are looked at before 4.
    refused = {candidate.machines: candidate for candidate in choose(24).candidates}[3]
    assert refused.bound_ns is None
    assert present(present(refused.result).infeasibility).binding == ("algorithms",)


def test_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bound_under", lambda _: 0)  # nothing is cut
    found = choose_size(layered((50, 50, 80)), on_switch(5, 100), 100, time_limit=1e-9)
    planned = [candidate for candidate in found.candidates if candidate.result is not None]
    assert found.timed_out
    assert [found.chosen] == planned


def test_resized() -> None:
    assert resized(on_switch(4, 100), 3) == on_switch(3, 100)
    tree = Cluster("t", "a test", 12, FatTree(4), NIC)
    assert resized(tree, 5) == replace(tree, machines=5)
    rails = Cluster("r", "a test", 3, Rails(3, 2, Fraction(10)), replace(NIC, per_machine=2))
    assert resized(rails, 1).workers == 2


# ---
# Groups of iterations: the cluster's constants become a problem of `drizzle`.


def engine(**constants: Any) -> Cluster:
    """Eight machines with two tasks each."""
    scheduling = Scheduling(**{"task_ns": 10, "tasks_per_machine": 2, **constants})
    return on_switch(8, 5, scheduling=scheduling)


def test_every_constant_of_the_cluster_counts() -> None:
    known: dict[str, Any] = {"group_ns": 700, "task_ns": 10, "constant_task_ns": 2}
    limits: dict[str, Any] = {"max_overhead": Fraction(1, 20), "max_group_ns": 10_000_000_000}
    expected = drizzle.Problem(compute_ns=1000, tasks=16, **known, **limits)
    assert scheduling_problem(engine(**known), 1000) == expected  # with limits by default


# ---
# Parts that communicate at the same time.


SECOND = 10**9

Groups = Sequence[Sequence[int]]


def on_rails(hosts: int, accelerators: int, *, link: int = 90, nic: int = 1) -> Cluster:
    rails = Rails(hosts, accelerators, Fraction(link * SECOND), 2)
    return Cluster("c", "a test", hosts, rails, Nic(Fraction(nic * SECOND), 10, accelerators))


@st.composite
def parted(draw: st.DrawFn) -> tuple[Cluster, int]:
    """Draw a cluster, and by how many ranks to shard."""
    cluster = draw(
        testing.clusters(machines=12).filter(lambda one: isinstance(one.topology, Rails | Switch))
    )
    if isinstance(cluster.topology, Switch) and draw(st.booleans()):
        cluster = replace(cluster, shared_bytes_per_s=draw(testing.rates))
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


def test_people_wrap_what_is_numbered_and_what_is_between() -> None:
    names = ("tokens", "positions", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "norm", "head")
    layers = tuple(Layer(name, 10, 20, 8, activation_bytes=4) for name in names)
    profile = Profile("tiny", layers, Provenance("synthetic", "a test"))
    problem = sharded_problem(profile, read_cluster("office-4"), recompute=True)
    assert problem.blocks == (0, 2, 4, 6)
    assert problem.checkpoint_bytes == (0, *[4] * 7)  # the output of the layer before


BCUBE = Cluster("b", "a test", 4, BCube(2, 2), replace(NIC, per_machine=2))


@pytest.mark.parametrize(
    ("ask", "path", "message"),
    [
        (partial(choose_size, ONE, on_switch(2, 100), 0), "epoch_samples", ""),
        (partial(choose_size, THREE, on_switch(2, 100), 2**62), "epoch_samples", ""),
        (partial(choose_size, UNKNOWN, on_switch(2, 100), 5), "profile.batch_size", ""),
        (partial(choose_size, ONE, on_switch(4097, 100), 5), "cluster.machines", ""),
        (partial(choose_size, SLOW, on_switch(2, 100), 2**10), "epoch_samples", ""),
        (partial(choose_size, ONE, BCUBE, 5), "cluster.topology", ""),
        (partial(resized, on_switch(4, 100), 0), "machines", ""),
        (partial(resized, on_switch(4, 100), 5), "machines", ""),
        (partial(group_size, on_switch(8, 5), 1000), "cluster.scheduling", "the engine's driver"),
        (partial(group_size, engine(), 1000, max_overhead=1), "max_overhead", ""),
        (partial(meshes_of, on_switch(4, 100), [3]), "shards[0]", "a divisor of 4 ranks"),
        (partial(meshes_of, on_switch(4, 100), [4, 0]), "shards[1]", "a divisor of 4 ranks"),
        (partial(meshes_of, on_rails(3, 8), [6]), "shards", "straddle hosts of 8 accelerators"),
        (partial(meshes_of, on_rails(3, 8), [12]), "shards", "straddle hosts of 8 accelerators"),
        (partial(meshes_of, SHARED, [3]), "shards", "of one group alone"),
        (partial(meshes_of, TREE, [1]), "shards", "no part of this topology"),
        (partial(meshes_of, TREE, [4]), "shards", "no part of this topology"),
    ],
)
def test_what_cannot_be_is_refused(ask: Callable[[], object], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message or None) as caught:
        ask()
    assert caught.value.path == path
    alone = path == "shards" or path.startswith("cluster.")
    assert isinstance(caught.value, NotApplicableError) == alone
