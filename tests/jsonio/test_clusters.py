"""Cluster files: what is read, where the first bad field is, and a schema that says the same."""

import json
import tomllib
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import to_builtins

import planner
from planner.cli import main
from planner.jsonio import decode_profile, encode_profile, shipped_clusters
from planner.jsonio.clusters import ClusterDocument, cluster_of, decode_cluster
from planner.jsonio.decoding import typed
from planner.jsonio.links import failed_document
from planner.jsonio.schemas import _of
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, FatTree, Rails, Switch
from tests import schemas
from tests.iteration.iteration_strategies import clusters
from tests.jsonio.patches import patched

SCHEMA = _of(ClusterDocument)
DATA = Path(__file__).parents[2] / "data"
FILES = sorted((DATA / "clusters").glob("*.json"))
PROFILES = sorted((DATA / "profiles").glob("*.json"))

SWITCH: dict[str, Any] = {
    "name": "rack",
    "source": "a test",
    "machines": 4,
    "topology": {"kind": "switch"},
    "nic": {"bytes_per_s": 1250000000, "startup_ns": 50000},
}
FULL: dict[str, Any] = {
    **SWITCH,
    "nic": {"bytes_per_s": 0.5, "startup_ns": 0, "per_machine": 2, "message_ns": 7},
    "cores": 8,
    "memory_bytes": 64,
    "shared_bytes_per_s": 1.25,
    "scheduling": {"task_ns": 1, "group_ns": 2, "constant_task_ns": 3, "tasks_per_machine": 4},
    "notes": ["assumed"],
}
RAILS: dict[str, Any] = {
    **SWITCH,
    "topology": {"kind": "rails", "accelerators": 8, "link_bytes_per_s": 9, "link_startup_ns": 3},
    "nic": {**SWITCH["nic"], "per_machine": 8},
}
BCUBE: dict[str, Any] = {
    **SWITCH,
    "topology": {"kind": "bcube", "n": 2, "k": 2},
    "nic": {**SWITCH["nic"], "per_machine": 2},
}
TREE: dict[str, Any] = {**SWITCH, "topology": {"kind": "fattree", "ports": 4}}


def read(document: Any) -> Cluster:
    return decode_cluster(json.dumps(document).encode())


def fits(document: Any) -> bool:
    return schemas.fits(document, "cluster")


@pytest.mark.parametrize(
    ("document", "topology"),
    [
        (SWITCH, Switch(4)),
        (TREE, FatTree(4)),
        (BCUBE, BCube(2, 2)),
        (RAILS, Rails(4, 8, Fraction(9), 3)),
        (patched(RAILS, {"topology.link_startup_ns": ...}), Rails(4, 8, Fraction(9))),
    ],
)
def test_topologies(document: dict[str, Any], topology: object) -> None:
    assert read(document).topology == topology
    assert fits(document)


def test_everything_is_read() -> None:
    assert fits(FULL)
    nic = Nic(Fraction(1, 2), 0, 2, 7)
    whole = Cluster("rack", "a test", 4, Switch(4), nic, 8, 64, Fraction(5, 4))
    more = {"scheduling": Scheduling(1, 2, 3, 4), "notes": ("assumed",)}
    assert read(FULL) == replace(whole, **more)
    assert read({**RAILS, "accelerator_memory_bytes": 80}).worker_memory_bytes == 80


def test_what_is_not_given_is_as_in_the_library() -> None:
    cluster = Cluster("rack", "a test", 4, Switch(4), Nic(Fraction(1250000000), 50000))
    assert read(SWITCH) == cluster


def test_the_documents_fields_are_the_librarys() -> None:
    for kind in (Cluster, Nic, Scheduling):
        name = "ClusterDocument" if kind is Cluster else f"{kind.__name__}Document"
        assert set(SCHEMA["$defs"][name]["properties"]) == {field.name for field in fields(kind)}


SHAPES = ("n", "k", "ports", "accelerators", "link_bytes_per_s")
TOGETHER: list[tuple[dict[str, Any], str, Any, str]] = [
    *(
        (base, f"topology.{name}", ... if name in base["topology"] else 4, "")
        for base in (SWITCH, BCUBE, TREE, RAILS)
        for name in SHAPES
    ),
    *((base, "topology.link_startup_ns", 4, "") for base in (SWITCH, TREE)),
    (SWITCH, "accelerator_memory_bytes", 80, ""),
    (SWITCH, "failed", {"servers": [[0]]}, ""),
    (BCUBE, "machines", 5, ""),
    (BCUBE, "topology.k", 3, "machines"),
    (BCUBE, "shared_bytes_per_s", 1, ""),
    (BCUBE, "failed", {"servers": [[0, 2]]}, "failed.servers[0][1]"),
    (BCUBE, "failed", {"nics": [[[0, 0], 4]]}, "failed.nics[0][1]"),
    (BCUBE, "failed", {"links": [[[0, 0], 1], [[0, 1], 2]]}, "failed.links[1][1]"),
    (BCUBE, "failed", {"switches": [[0, [0, 1]]]}, "failed.switches[0][1]"),
    (BCUBE, "failed", {"servers": [[0, 0], [0, 1], [1, 0], [1, 1]]}, "failed.servers"),
    (TREE, "topology.ports", 5, ""),
    (RAILS, "machines", 2**14, ""),
]
"""What several fields say together no schema can check; where the error's place is another one."""


@pytest.mark.parametrize(("base", "path", "value", "place"), TOGETHER, ids=str)
@pytest.mark.parametrize("within", ["", "cluster"])
def test_fields_that_do_not_fit_together(
    base: dict[str, Any], path: str, value: Any, place: str, within: str
) -> None:
    document = patched(base, {path: value})
    assert fits(document)
    with pytest.raises(InvalidInputError) as raised:
        cluster_of(typed(document, ClusterDocument), within)
    assert raised.value.path == ".".join(filter(None, (within, place or path)))


@settings(max_examples=40)
@given(clusters())
def test_every_cluster_can_be_written_down(cluster: Cluster) -> None:
    """Speeds that are no decimals are rounded first: JSON has no thirds."""
    topology, nic = cluster.topology, cluster.nic
    names = ("startup_ns", "per_machine", "message_ns")
    document: dict[str, Any] = {
        **SWITCH,
        "machines": cluster.machines,
        "nic": {name: getattr(nic, name) for name in names}
        | {"bytes_per_s": round(nic.bytes_per_s)},
    }
    match topology:
        case BCube(n, k):
            document["topology"] = {"kind": "bcube", "n": n, "k": k}
            document["failed"] = to_builtins(failed_document(topology, cluster.failed))
        case FatTree(ports):
            document["topology"] = {"kind": "fattree", "ports": ports}
        case Rails(_, accelerators, speed, startup):
            link = {"link_bytes_per_s": round(speed), "link_startup_ns": startup}
            document["topology"] = {"kind": "rails", "accelerators": accelerators, **link}
    found = read(document)
    assert fits(document)
    assert type(found.topology) is type(topology)
    assert found.failed == cluster.failed
    assert (found.workers, found.nic.per_machine) == (cluster.workers, cluster.nic.per_machine)


def test_shipped_clusters_are_found_by_name_and_are_those_of_data() -> None:
    assert [path.stem for path in FILES] == list(shipped_clusters())
    for path in FILES:
        assert fits(json.loads(path.read_bytes()))
        found = planner.read_cluster(path.stem)
        assert found == planner.read_cluster(path) == decode_cluster(path.read_text("utf-8"))
        assert found.name == path.stem


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "caramel-16").write_bytes((DATA / "clusters/office-4.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert planner.read_cluster("caramel-16").name == "office-4"
    assert planner.read_cluster("caramel-8").name == "caramel-8"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("caramel-61", "did you mean caramel-16"),
        ("Caramel16", "did you mean caramel-16"),
        ("H100-9.json", "did you mean h100-8"),
        ("xyz", "shipped are a100dgx-2, "),
        ("", "shipped are"),
        (".", "shipped are"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(wrong: str, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named) as caught:
        planner.read_cluster(wrong)
    assert caught.value.path == "cluster"


@pytest.mark.parametrize("path", ["clusters/caramel-61.json", "/none/caramel-16"])
def test_a_missing_file_in_a_folder_is_one(path: str) -> None:
    with pytest.raises(FileNotFoundError, match=path):
        planner.read_cluster(path)


def test_shipped_profiles_come_back() -> None:
    for path in PROFILES:
        profile = planner.read_profile(path)
        assert profile == planner.read_profile(str(path)) == decode_profile(path.read_bytes())
        assert decode_profile(encode_profile(profile)) == profile


def test_wheels_hold_every_shipped_cluster() -> None:
    config = tomllib.loads((DATA.parent / "pyproject.toml").read_text("utf-8"))
    patterns = config["tool"]["setuptools"]["package-data"]["planner"]
    held = [path for one in patterns for path in (DATA.parent / "planner").glob(one)]
    assert {path.resolve() for path in FILES} <= {path.resolve() for path in held}


def test_commands_take_names_of_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    profile, file = str(DATA / "profiles/lenet5.json"), str(DATA / "clusters/office-4.json")
    printed = []
    for cluster in ("office-4", file):
        assert main(["plan", profile, "--cluster", cluster]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert main(["plan", profile, "--cluster", "ofice-4"]) == 2
    error = capsys.readouterr().err
    assert "--cluster: " in error
    assert "did you mean office-4?" in error
