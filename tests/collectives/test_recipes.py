"""Recipes: what a plan says of its program is enough to make it, and is what its cost is of."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from planner.families.collectives import check
from planner.families.collectives.program import KINDS
from planner.families.collectives.recipes import MAX_RANKS, Recipe, made
from planner.families.iteration.synchronisation import ALGORITHMS, recipe_on, synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube, FatTree, Rails, Switch, Topology
from tests.collectives.pricing import time_of

NIC = Nic(Fraction(10**9), 1000)
CLUSTERS: list[tuple[int, Topology]] = [
    *((machines, Switch(machines)) for machines in (1, 2, 3, 5, 6, 7, 8, 9, 12)),
    (16, FatTree(4)),
    (12, FatTree(6)),
    (3, BCube(3, 1)),
    (8, BCube(2, 3)),
    (9, BCube(3, 2)),
    (16, BCube(4, 2)),
    (1, Rails(1, 4, Fraction(5 * 10**9), 100)),
    (2, Rails(2, 3, Fraction(5 * 10**9), 100)),
    (4, Rails(4, 2, Fraction(5 * 10**9), 100)),
    (3, Rails(3, 4, Fraction(5 * 10**9), 100)),
    (3, Rails(3, 2, Fraction(5 * 10**9), 100)),
]


def cluster_of(machines: int, topology: Topology) -> Cluster:
    nics = {BCube: "k", Rails: "accelerators"}.get(type(topology), "")
    nic = Nic(NIC.bytes_per_s, NIC.startup_ns, getattr(topology, nics, 1))
    return Cluster("tried", "a test", machines, topology, nic)


@pytest.mark.parametrize(("machines", "topology"), CLUSTERS, ids=str)
def test_what_is_run_costs_what_was_planned(machines: int, topology: Topology) -> None:
    cluster = cluster_of(machines, topology)
    options, _ = synchronisations(cluster, ALGORITHMS)
    for option in (option for option in options if option.depth == 1):
        program = made(recipe_on(cluster, option.algorithm))
        assert program.ranks == cluster.workers
        check(program)
        links = [Network(NIC.bytes_per_s, NIC.startup_ns)]
        if isinstance(topology, Rails):
            links = [Network(topology.link_bytes_per_s, topology.link_startup_ns), *links]
        size = 60 * program.chunks
        time = time_of(program, links, size)
        planned = option.all_reduce.cost_ns(size)
        # On rails a ring's links within hosts and NICs start together; the price has the NIC's.
        assert time == pytest.approx(planned, abs=2)
        owners = Counter(map(program.owner, range(program.chunks)))
        assert len({owners[rank] for rank in range(program.ranks)}) == 1  # so shards are alike
        for kind in KINDS[1:]:
            half = program.half(kind)
            assert time_of(half, links, size) == pytest.approx(option.half.cost_ns(size), abs=2)


@pytest.mark.parametrize(
    ("generator", "shape", "path"),
    [
        ("rings", (4,), "generator"),
        (None, (4,), "generator"),
        ("ring", (), "shape"),
        ("ring", (4, 4), "shape"),
        ("ring", (0,), "shape[0]"),
        ("ring", (2.5,), "shape[0]"),
        ("ring", (MAX_RANKS + 1,), "shape[0]"),
        ("bml", (3,), "shape"),
        ("bml", (1, 2), "n"),
        ("bml", (2, 17), "shape"),
        ("bml", (2, 60000), "shape"),
        ("hierarchical", (300, 300), "shape"),
        ("ring_rails", (300, 300), "shape[0]"),
    ],
)
def test_what_is_no_recipe_is_refused(generator: Any, shape: Any, path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        made(Recipe(generator, shape))
    assert caught.value.path == path


def test_what_does_not_apply_says_so() -> None:
    with pytest.raises(NotApplicableError, match="power of two"):
        made(Recipe("halving_doubling_bcube", (3, 2)))
    with pytest.raises(NotApplicableError, match="powers of two"):
        made(Recipe("halving_doubling_rails", (3, 2)))
