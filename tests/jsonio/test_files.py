"""Files of clusters and of profiles: what is read and written, and how shipped ones are found."""

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner import Profile, caramel, iteration
from planner.families.collectives.prediction import nic_of
from planner.families.iteration.synchronisation import synchronisations
from planner.jsonio import decode_profile, encode_profile, shipped_clusters
from planner.jsonio.clusters import decode_cluster
from planner.jsonio.network_measurements import cluster_document
from planner.jsonio.types import laid_out
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.contention import Interference
from planner.model.costs import AffineCost
from planner.model.fitting import Sweep, Timing, fit_network
from planner.model.graphs import Graph
from planner.model.measured import Collective
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch
from planner.testing import graphs
from tests import schemas
from tests.formats.refused import refused
from tests.jsonio.requests import BASES, ROOT, patched
from tests.strategies import profiles

FILES = sorted((ROOT / "data" / "clusters").glob("*.json"))


def read(document: Any) -> Cluster:
    """Return the cluster that a document describes, which fits the schema."""
    schemas.validate(document, "cluster")
    return decode_cluster(json.dumps(document).encode())


NIC = Nic(Fraction(1250000000), 50000)  # what is not given is as in the library
rack = partial(Cluster, "rack", "a test", 4)
FULL: dict[str, Any] = {"cores": 8, "memory_bytes": 64, "shared_bytes_per_s": Fraction(5, 4)}
FULL |= {"scheduling": Scheduling(1, 2, 3, 4), "notes": ("assumed",)}
DAMAGE = {"servers": [[0, 1]], "nics": [[[0, 0], 1]], "links": [[[1, 0], 0]]}
FAILED = Failures(frozenset({1}), frozenset({(0, 1), (2, 0)}), frozenset({(1, 0)}))
RAILS_OF = {"topology.link_startup_ns": ..., "accelerator_memory_bytes": 80}
READ: list[tuple[str, dict[str, Any], Cluster]] = [
    ("switch", {}, rack(Switch(4), NIC)),
    ("full", {}, rack(Switch(4), Nic(Fraction(1, 2), 0, 2, 7), **FULL)),
    (
        *("rails", RAILS_OF),
        rack(Rails(4, 8, Fraction(9)), replace(NIC, per_machine=8), accelerator_memory_bytes=80),
    ),
    (
        *("bcube", {"failed": {**DAMAGE, "switches": [[1, [0]]]}}),
        rack(BCube(2, 2), replace(NIC, per_machine=2), failed=FAILED),
    ),
    ("fattree", {}, rack(FatTree(4), NIC)),
]


@pytest.mark.parametrize(("base", "change", "cluster"), READ, ids=[row[0] for row in READ])
def test_everything_is_read(base: str, change: dict[str, Any], cluster: Cluster) -> None:
    found = read(patched(BASES[base], change))
    assert found == cluster
    assert base != "rails" or found.worker_memory_bytes == 80


def test_shipped_clusters_are_found_by_name_and_are_those_of_data() -> None:
    assert [path.stem for path in FILES] == list(shipped_clusters())
    for path in FILES:
        found = planner.read_cluster(path.stem)
        assert found == planner.read_cluster(path) == read(json.loads(path.read_bytes()))
        assert found == decode_cluster(path.read_text("utf-8"))
        assert found.name == path.stem


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "caramel-16").write_bytes((ROOT / "data/clusters/office-4.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert planner.read_cluster("caramel-16").name == "office-4"
    assert planner.read_cluster("caramel-8").name == "caramel-8"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("caramel-61", "did you mean caramel-16"),
        ("H100-9.json", "did you mean h100-8"),
        ("xyz", "shipped are a100dgx-2, "),
        (".", "shipped are"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(wrong: str, named: str) -> None:
    with refused("cluster", named):
        planner.read_cluster(wrong)


@pytest.mark.parametrize("path", ["clusters/caramel-61.json", "/none/caramel-16"])
def test_a_missing_file_in_a_folder_is_one(path: str) -> None:
    with pytest.raises(FileNotFoundError, match=path):
        planner.read_cluster(path)


COSTS = st.builds(AffineCost, st.integers(0, 10**9), st.fractions(Fraction(1, 100), 1000))
BCUBES = st.sampled_from([BCube(2, 2), BCube(3, 2), BCube(2, 3), BCube(4, 2)])
SIZES = (64, 4096, 262_144, 4_000_000)


def sweep_of(
    cost: AffineCost, sizes: tuple[int, ...] = SIZES, what: Collective = "all_reduce"
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


@given(COSTS, st.integers(2, 64), BCUBES)
def test_an_all_reduce_costs_what_was_measured(cost: AffineCost, ranks: int, bcube: BCube) -> None:
    cluster = Cluster("c", "s", ranks, Switch(ranks), nic_of(cost, ranks))
    assert_close(priced(cluster, "ring"), cost, 2 * ranks)
    cluster = Cluster("c", "s", bcube.servers, bcube, nic_of(cost, bcube.servers, bcube))
    assert_close(priced(cluster, "bml"), cost, 2 * bcube.k)


@pytest.mark.parametrize("bcube", [None, BCube(2, 2)])
def test_the_file_is_a_cluster(bcube: BCube | None) -> None:
    cost, beside = AffineCost(600_000, Fraction(3, 2)), Interference(1000, Fraction(1, 3))
    sweep = sweep_of(cost)
    more: dict[str, Any] = {"cores": 3, "bcube": bcube, "interference": beside, "notes": ["a note"]}
    document = cluster_document(sweep, fit_network(sweep), name="mine", source="here", **more)
    cluster = decode_cluster(laid_out(document))
    assert (cluster.name, cluster.source, cluster.machines, cluster.cores) == ("mine", "here", 4, 3)
    assert_close(priced(cluster, "ring" if bcube is None else "bml"), cost, 12)
    assert cluster.notes[-1] == "a note"
    assert "64 B and 4 MB" in cluster.notes[0]
    assert float(cluster.interference.ns_per_byte) == pytest.approx(1 / 3)
    assert cluster.interference.startup_ns == 1000
    without_4_mb = sweep_of(cost, sizes=(64, 4096, 65_536))
    document = cluster_document(without_4_mb, fit_network(without_4_mb), name="n", source="s")
    assert "affine" in document.notes[0]
    assert_close(priced(decode_cluster(laid_out(document)), "ring"), cost, 12)


def test_what_makes_no_cluster() -> None:
    flat = sweep_of(AffineCost(5, Fraction(0)))
    other = sweep_of(AffineCost(5, Fraction(1)), what="all_gather")
    for sweep, path in ((flat, "ns_per_byte"), (other, "collective")):
        with refused(path, ""):
            cluster_document(sweep, fit_network(sweep), name="n", source="s")


# ---
# Profiles


@pytest.mark.slow
@given(profiles(), st.none() | graphs(), st.booleans(), st.lists(st.integers(0, 2), min_size=20))
def test_profiles_come_back(
    drawn: Profile, graph: Graph | None, layers: bool, counts: list[int]
) -> None:
    named = tuple(
        replace(layer, parameters=tuple(f"w ü{at}.{one}" for one in range(counts[at])))
        for at, layer in enumerate(drawn.layers)
    )
    profile = replace(drawn, graph=graph, layers=named if layers or not graph else ())
    text = encode_profile(profile)
    assert decode_profile(text) == profile
    assert decode_profile(text.encode("utf-8", "surrogatepass")) == profile
    schemas.validate(json.loads(text), "profile")


@pytest.mark.parametrize("name", ["lenet5", "gpt2_small"])
def test_shipped_profiles_come_back(name: str) -> None:
    """With shapes, kernels and kinds of layers, too."""
    path = ROOT / f"data/profiles/{name}.json"
    profile = planner.read_profile(path)
    assert profile == planner.read_profile(str(path)) == decode_profile(path.read_bytes())
    assert decode_profile(encode_profile(profile)) == profile


def test_plans_keep_to_a_fixed_order() -> None:
    graph = {name: BASES["forked"][name] for name in ("ops", "parameters")}
    cluster = planner.read_cluster("caramel-16")
    for fixed, order in ((False, ("short", "long", "f")), (True, ("long", "short", "f"))):
        document = {**BASES["graph"], **graph, "fixed_order": fixed}
        profile = decode_profile(json.dumps(document))
        assert decode_profile(encode_profile(profile)) == profile
        for problem in (
            caramel.Problem.from_profile(profile, cluster.nic),
            iteration.Problem.from_profile(profile, cluster).base,
        ):
            names = problem.graph.names_of((*problem.order.backward, *problem.order.forward))
            assert names == order
            assert problem.fixed_order == fixed
