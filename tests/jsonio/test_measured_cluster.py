"""A cluster made of timed all-reduces prices the same all-reduces as they were timed."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.collectives.prediction import nic_of
from planner.families.iteration.synchronisation import synchronisations
from planner.jsonio.clusters import decode_cluster
from planner.jsonio.network_measurements import cluster_document
from planner.jsonio.types import laid_out
from planner.model.clusters import Cluster
from planner.model.contention import Interference
from planner.model.costs import AffineCost
from planner.model.errors import InvalidInputError
from planner.model.fitting import Sweep, Timing, fit_network
from planner.model.measured import Collective
from planner.model.topologies import BCube, Switch

COSTS = st.builds(AffineCost, st.integers(0, 10**9), st.fractions(Fraction(1, 100), 1000))
SIZES = (64, 4096, 262_144, 4_000_000)


def sweep_of(
    cost: AffineCost,
    ranks: int = 4,
    sizes: tuple[int, ...] = SIZES,
    what: Collective = "all_reduce",
) -> Sweep:
    timings = tuple(Timing(size, 1, (max(cost.cost_ns(size), 1),)) for size in sizes)
    return Sweep(what, "ring", 4, 0, 1, timings)


def priced(cluster: Cluster, algorithm: str) -> AffineCost:
    """What the planner of whole iterations says both halves of an all-reduce cost."""
    (found,), _ = synchronisations(cluster, (algorithm,))
    half = found.half
    assert isinstance(half, AffineCost)
    return AffineCost(2 * half.startup_ns, 2 * half.ns_per_byte)


def assert_close(found: AffineCost, wanted: AffineCost, steps: int) -> None:
    assert abs(found.startup_ns - wanted.startup_ns) <= steps  # half a ns a step, twice
    assert float(found.ns_per_byte) == pytest.approx(float(wanted.ns_per_byte), rel=1e-3)


@given(COSTS, st.integers(2, 64))
def test_a_ring_costs_what_was_measured(cost: AffineCost, ranks: int) -> None:
    cluster = Cluster("c", "s", ranks, Switch(ranks), nic_of(cost, ranks))
    assert_close(priced(cluster, "ring"), cost, 2 * ranks)


@given(COSTS, st.sampled_from([(2, 2), (3, 2), (2, 3), (4, 2)]))
def test_bml_costs_what_was_measured(cost: AffineCost, shape: tuple[int, int]) -> None:
    bcube = BCube(*shape)
    cluster = Cluster("c", "s", bcube.servers, bcube, nic_of(cost, bcube.servers, bcube))
    assert_close(priced(cluster, "bml"), cost, 2 * bcube.k)


@pytest.mark.parametrize("bcube", [None, BCube(2, 2)])
def test_the_file_is_a_cluster(bcube: BCube | None) -> None:
    cost, beside = AffineCost(600_000, Fraction(3, 2)), Interference(1000, Fraction(1, 3))
    sweep = sweep_of(cost)
    document = cluster_document(
        sweep,
        fit_network(sweep),
        name="mine",
        source="here",
        cores=3,
        bcube=bcube,
        interference=beside,
        notes=["a note"],
    )
    cluster = decode_cluster(laid_out(document))
    assert (cluster.name, cluster.source, cluster.machines, cluster.cores) == ("mine", "here", 4, 3)
    assert_close(priced(cluster, "ring" if bcube is None else "bml"), cost, 12)
    assert cluster.notes[-1] == "a note"
    assert "64 B and 4 MB" in cluster.notes[0]
    assert float(cluster.interference.ns_per_byte) == pytest.approx(1 / 3)
    assert cluster.interference.startup_ns == 1000


def test_without_4_mb_it_is_the_affine_cost() -> None:
    cost = AffineCost(600_000, Fraction(3, 2))
    sweep = sweep_of(cost, sizes=(64, 4096, 65_536))
    document = cluster_document(sweep, fit_network(sweep), name="mine", source="here")
    assert "affine" in document.notes[0]
    assert_close(priced(decode_cluster(laid_out(document)), "ring"), cost, 12)


def test_what_makes_no_cluster() -> None:
    flat, other = (
        sweep_of(AffineCost(5, Fraction(0))),
        sweep_of(AffineCost(5, Fraction(1)), what="all_gather"),
    )
    for sweep, path in ((flat, "ns_per_byte"), (other, "collective")):
        with pytest.raises(InvalidInputError) as caught:
            cluster_document(sweep, fit_network(sweep), name="n", source="s")
        assert caught.value.path == path
