"""Clusters, profiles and stand-ins in `data`: complete, and as their sources print them."""

import json
import re
from fractions import Fraction
from pathlib import Path
from runpy import run_path

import pytest

import planner
from planner import Profile
from planner.cli import main
from planner.jsonio import decode_profile
from tests import schemas
from tests.large import shipped
from tests.present import present

ROOT = Path(__file__).parents[1]
DATA = ROOT / "data"
# Machines, line rate of a NIC in Gb/s, NICs of a machine: what the sources print.
CLUSTERS = {
    "ibatch-72": (72, 10, 1),
    "caramel-8": (8, 10, 1),
    "caramel-16": (16, 10, 1),
    "yan-20": (20, 10, 1),
    "bml-bcube": (9, 40, 2),
    "bml-switch": (9, 40, 1),
    "drizzle-32": (32, 10, 1),
    "drizzle-64": (64, 10, 1),
    "h100-8": (8, 400, 8),
    "h100-32": (32, 400, 8),
    "a10g-16": (16, 25, 1),
    "office-4": (4, 10, 1),
    "h100ib-10": (10, 400, 8),
    "a100dgx-2": (2, 200, 8),
    "h100dgx-1": (1, 400, 8),
    "a100pair-1": (1, 200, 4),
    "h100pair-1": (1, 400, 4),
}
MEMORY = {"caramel": 12 * 2**30, "yan": 64 * 2**30, "drizzle": 61 * 2**30, "h100": 640 * 10**9}
# Parameters, as published.
PROFILES = {
    "googlenet": 6_998_552,
    "inception_v3": 27_161_264,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg19_22k": 229_052_817,
    "alexnet_v2": 50_303_912,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "lenet5": 3_274_634,
    "gpt2_small": 124_439_808,
}
YAN = run_path(str(DATA / "make_yan.py"))["requests"]()


def profile_of(name: str) -> Profile:
    return decode_profile((DATA / "profiles" / f"{name}.json").read_bytes())


def test_all_are_there() -> None:
    for kind, names in (("clusters", CLUSTERS), ("profiles", PROFILES), ("yan", YAN)):
        assert {path.stem for path in (DATA / kind).glob("*.json")} == set(names)


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_have_the_numbers_of_their_sources_and_assumed_start_ups(name: str) -> None:
    cluster = shipped(f"clusters/{name}.json")
    schemas.validate(cluster, "cluster")
    nic = cluster["nic"]
    rate = 8 * nic["bytes_per_s"] / 10**9
    assert cluster["name"] == name
    assert (cluster["machines"], rate, nic["per_machine"]) == CLUSTERS[name]
    paper = name.partition("-")[0]
    if paper in MEMORY:
        assert cluster["memory_bytes"] == MEMORY[paper]
    if paper == "drizzle":  # within what its figures allow
        least, most = (Fraction(900_000_000, tasks) for tasks in (3000, 2050))
        assert least <= cluster["scheduling"]["task_ns"] <= most
    assert nic["message_ns"] < nic["startup_ns"]
    for field in ("startup_ns", "message_ns"):
        (note,) = (one for one in cluster["notes"] if re.match(rf"(nic\.)?{field} .*assumed", one))
        found = present(re.search(r"([0-9.]+) to ([0-9.]+) (µs|ms)", note))
        scale = {"µs": 1_000, "ms": 1_000_000}[found[3]]
        least, most = (Fraction(found[at]) * scale for at in (1, 2))
        assert least <= nic[field] <= most


def test_the_page_lists_every_cluster() -> None:
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    table = page.partition("## The shipped clusters")[2].partition("\n\n**")[0]
    assert set(re.findall(r"`([a-z0-9]+-(?:[0-9]+|bcube|switch))`", table)) == set(CLUSTERS)


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_say_where_their_numbers_come_from_and_list_their_parameters(name: str) -> None:
    profile = profile_of(name)
    assert profile.name == name
    assert profile.parameter_bytes == 4 * PROFILES[name]
    assert profile.batch_size
    origin = profile.provenance
    assert origin.kind == "measured"
    assert name in origin.source
    assert all((origin.date, origin.processor, origin.threads, origin.versions["torch"]))
    assert (origin.repetitions or 0) >= 5
    assert any("published" in note for note in origin.notes)
    for layer in profile.layers:
        assert None not in (layer.forward_spread_ns, layer.backward_spread_ns)
        assert layer.gradient_ready_ns is not None or not layer.parameter_bytes
    ready = [present(layer.gradient_ready_ns) for layer in profile.chain().layers]
    assert ready == sorted(ready, reverse=True)
    sizes = {it.name: it.size_bytes for it in present(profile.graph).parameters}
    for one in (profile, profile.chain()):
        names = present(one.layer_parameters())
        assert sorted(sum(names, ())) == sorted(sizes)
        for layer, found in zip(one.layers, names, strict=True):
            assert sum(map(sizes.__getitem__, found)) == layer.parameter_bytes
            owners = {parameter.rpartition(".")[0] for parameter in found}
            assert owners <= {layer.name} or one is not profile


def test_a_tied_parameter_counts_where_it_is_read_first() -> None:
    profile = profile_of("gpt2_small")
    (tied,) = (it for it in present(profile.graph).parameters if len(it.read_by) > 1)
    names = present(profile.layer_parameters())
    (owner,) = (layer for layer, of in zip(profile.layers, names, strict=True) if tied.name in of)
    users = [layer.name for layer in profile.layers if f"{layer.name}/forward" in tied.read_by]
    assert len(users) == 2
    assert owner.name == users[0]


def test_a_plan_of_a_profile_names_the_parameters_it_moves(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command = f"compare {DATA}/profiles/gpt2_small.json --startup 1ms --bandwidth 1Gb/s"
    assert main([*command.split(), "--methods", "exact", "-o", str(plan)]) == 0
    answer, layers = json.loads(plan.read_text()), profile_of("gpt2_small").chain().layers
    assert answer["layer_names"] == [unit.name for unit in layers]
    assert answer["layer_parameters"] == [list(unit.parameters) for unit in layers]
    assert answer["layer_bytes"] == [unit.parameter_bytes for unit in layers]


def test_the_stand_ins_of_yan_are_what_the_script_writes_and_meet_the_printed_totals() -> None:
    assert {name: shipped(f"yan/{name}.json") for name in YAN} == YAN
    printed = ("mnist", 5, 2.45e6, 2.55e6), ("imagenet22k", 8, 2e9, 2.2e9)
    for name, layers, least, most in printed:
        request = YAN[name]
        assert (request["machines"], request["cores"], len(request["layers"])) == (20, 16, layers)
        assert least <= sum(layer["connections"] for layer in request["layers"]) <= most
        assert request["note"].startswith("Synthetic")


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("mnist", "2/9/2 2/8/4 2/6/8 4/4/4 1/19/1 1/18/2 1/16/4 1/12/8"),
        ("imagenet22k", "4/4/4 4/4/2 2/9/2 4/3/6 4/3/4 2/8/4 2/6/6 2/6/4"),
    ],
)
def test_table_1_comes_out_rank_by_rank_and_the_best_is_better(name: str, ranks: str) -> None:
    request = shipped(f"yan/{name}-table1.json")
    request["fixed"].reverse()  # the order in which they are given must not matter
    given, best = planner.solve(request), planner.solve(YAN[name])
    assert given["status"] == best["status"] == "optimal"
    assert [
        f"{row['workers_per_replica']}/{row['replicas']}/{row['parameter_servers']}"
        for row in given["top"]
    ] == ranks.split()
    assert "interference" in request["constants"]
    assert best["epoch_ns"] <= given["epoch_ns"]
