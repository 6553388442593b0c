"""Cluster files: what is read, where the first bad field is, and a schema that says the same."""

import json
from copy import deepcopy
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import to_builtins

from planner.jsonio.clusters import ClusterDocument, cluster_of, decode_cluster
from planner.jsonio.decoding import typed
from planner.jsonio.links import failed_document
from planner.jsonio.schemas import _of
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, FatTree, Rails, Switch
from planner.model.validation import MAX_VALUE
from tests import schemas
from tests.iteration.iteration_strategies import clusters
from tests.jsonio.test_service import json_values

SCHEMA = _of(ClusterDocument)
FILES = sorted((Path(__file__).parents[2] / "data" / "clusters").glob("*.json"))

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


NAMED = {name: value for name, value in RAILS.items() if name != "memory_bytes"} | {
    "accelerator_memory_bytes": 80
}


def test_an_accelerator_s_memory_is_read() -> None:
    assert read(NAMED).worker_memory_bytes == 80
    with pytest.raises(InvalidInputError) as caught:
        read({**SWITCH, "accelerator_memory_bytes": 80})
    assert caught.value.path == "accelerator_memory_bytes"


def read(document: Any) -> Cluster:
    return decode_cluster(json.dumps(document).encode())


def fits(document: Any) -> bool:
    return schemas.fits(document, "cluster")


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a document with one field changed, or without it if the value is `...`."""
    document = deepcopy(base)
    inner = document
    *outer, last = path.split(".")
    for name in outer:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return document


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_files_are_read_and_fit_the_schema(path: Path) -> None:
    cluster = decode_cluster(path.read_bytes())
    assert cluster.name == path.stem
    assert fits(json.loads(path.read_bytes()))


def test_there_are_shipped_files() -> None:
    assert FILES


@pytest.mark.parametrize(
    ("document", "topology"),
    [
        (SWITCH, Switch(4)),
        (TREE, FatTree(4)),
        (BCUBE, BCube(2, 2)),
        (RAILS, Rails(4, 8, Fraction(9), 3)),
        (changed(RAILS, "topology.link_startup_ns", ...), Rails(4, 8, Fraction(9))),
    ],
)
def test_topologies(document: dict[str, Any], topology: object) -> None:
    assert read(document).topology == topology
    assert fits(document)


def test_everything_is_read() -> None:
    assert fits(FULL)
    assert read(FULL) == Cluster(
        name="rack",
        source="a test",
        machines=4,
        topology=Switch(4),
        nic=Nic(Fraction(1, 2), 0, 2, 7),
        cores=8,
        memory_bytes=64,
        shared_bytes_per_s=Fraction(5, 4),
        scheduling=Scheduling(1, 2, 3, 4),
        notes=("assumed",),
    )


def test_what_is_not_given_is_as_in_the_library() -> None:
    cluster = Cluster("rack", "a test", 4, Switch(4), Nic(Fraction(1250000000), 50000))
    assert read(SWITCH) == cluster


def test_the_documents_fields_are_the_librarys() -> None:
    for kind in (Cluster, Nic, Scheduling):
        name = "ClusterDocument" if kind is Cluster else f"{kind.__name__}Document"
        assert set(SCHEMA["$defs"][name]["properties"]) == {field.name for field in fields(kind)}


BY_THE_SCHEMA = [
    *((FULL, name, ...) for name in ("name", "source", "machines", "topology", "nic")),
    (FULL, "topology.kind", ...),
    (FULL, "nic.bytes_per_s", ...),
    (FULL, "nic.startup_ns", ...),
    (FULL, "scheduling.task_ns", ...),
    (FULL, "name", ""),
    (FULL, "name", 3),
    (FULL, "source", ""),
    (FULL, "source", None),
    (FULL, "machines", 0),
    (FULL, "machines", 2**16 + 1),
    (FULL, "machines", "4"),
    (FULL, "machines", 4.5),
    (FULL, "machines", True),
    (FULL, "cores", 0),
    (FULL, "cores", 2**20 + 1),
    (FULL, "memory_bytes", 0),
    (FULL, "memory_bytes", -1),
    (FULL, "memory_bytes", MAX_VALUE + 1),
    (FULL, "shared_bytes_per_s", 0),
    (FULL, "shared_bytes_per_s", -0.5),
    (FULL, "shared_bytes_per_s", None),
    (FULL, "shared_bytes_per_s", MAX_VALUE + 2048),
    (FULL, "notes", "a note"),
    (FULL, "unknown", 1),
    (FULL, "nic", 5),
    (FULL, "nic.bytes_per_s", 0),
    (FULL, "nic.bytes_per_s", "fast"),
    (FULL, "nic.startup_ns", -1),
    (FULL, "nic.startup_ns", 0.5),
    (FULL, "nic.startup_ns", MAX_VALUE + 1),
    (FULL, "nic.per_machine", 0),
    (FULL, "nic.per_machine", 1025),
    (FULL, "nic.message_ns", -1),
    (FULL, "nic.unknown", 1),
    (FULL, "scheduling", None),
    (FULL, "scheduling.task_ns", -1),
    (FULL, "scheduling.group_ns", -1),
    (FULL, "scheduling.constant_task_ns", -1),
    (FULL, "scheduling.tasks_per_machine", 0),
    (FULL, "scheduling.tasks_per_machine", 2**20 + 1),
    (FULL, "scheduling.unknown", 1),
    (FULL, "topology", "switch"),
    (FULL, "topology.kind", "torus"),
    (FULL, "topology.unknown", 1),
    *((SWITCH, f"topology.{name}", 4) for name in ("n", "k", "ports", "accelerators")),
    *((SWITCH, f"topology.link_{name}", 4) for name in ("bytes_per_s", "startup_ns")),
    *((BCUBE, f"topology.{name}", ...) for name in ("n", "k")),
    *((BCUBE, f"topology.{name}", 4) for name in ("ports", "accelerators", "link_bytes_per_s")),
    (BCUBE, "topology.n", 0),
    (BCUBE, "topology.k", 0),
    (BCUBE, "topology.k", 2.5),
    (TREE, "topology.ports", ...),
    (TREE, "topology.ports", 0),
    (TREE, "topology.ports", 2**22 + 1),
    *((TREE, f"topology.{name}", 4) for name in ("n", "k", "accelerators", "link_startup_ns")),
    *((RAILS, f"topology.{name}", ...) for name in ("accelerators", "link_bytes_per_s")),
    *((RAILS, f"topology.{name}", 4) for name in ("n", "k", "ports")),
    (RAILS, "topology.accelerators", 0),
    (RAILS, "topology.accelerators", 1025),
    (RAILS, "topology.link_bytes_per_s", 0),
    (RAILS, "topology.link_startup_ns", -1),
]


@pytest.mark.parametrize(("base", "path", "value"), BY_THE_SCHEMA, ids=str)
def test_each_bad_field_is_named_and_but_for_those_of_other_topologies_refused_by_the_schema(
    base: dict[str, Any], path: str, value: Any
) -> None:
    document = changed(base, path, value)
    with pytest.raises(InvalidInputError) as raised:
        read(document)
    assert raised.value.path == path
    depends = path.startswith("topology.") and path != "topology.kind"
    assert fits(document) == (depends and value in (4, ...))


@pytest.mark.parametrize(
    ("base", "path", "value", "place"),
    [
        # What several fields say together no schema can check.
        (BCUBE, "machines", 5, "machines"),
        (BCUBE, "topology.n", 1, "topology.n"),
        (BCUBE, "topology.k", 70, "topology.k"),
        (BCUBE, "topology.k", 3, "machines"),
        (BCUBE, "nic.per_machine", 1, "nic.per_machine"),
        (BCUBE, "shared_bytes_per_s", 1, "shared_bytes_per_s"),
        (BCUBE, "failed", {"servers": [[0, 2]]}, "failed.servers[0][1]"),
        (BCUBE, "failed", {"links": [[[0, 0], 1], [[0, 1], 2]]}, "failed.links[1][1]"),
        (BCUBE, "failed", {"switches": [[0, [0, 1]]]}, "failed.switches[0][1]"),
        (
            BCUBE,
            "failed",
            {"servers": [[0, 0], [0, 1], [1, 0], [1, 1]]},
            "failed.servers",
        ),
        (SWITCH, "failed", {"servers": [[0]]}, "failed"),
        (TREE, "machines", 17, "machines"),
        (TREE, "topology.ports", 5, "topology.ports"),
        (RAILS, "nic.per_machine", 4, "nic.per_machine"),
        (RAILS, "shared_bytes_per_s", 1, "shared_bytes_per_s"),
        (RAILS, "machines", 2**14, "machines"),
        (FULL, "notes", [1], "notes[0]"),
    ],
    ids=str,
)
def test_fields_that_do_not_fit_together(
    base: dict[str, Any], path: str, value: Any, place: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read(changed(base, path, value))
    assert raised.value.path == place


@pytest.mark.parametrize(
    ("base", "path", "value", "place"),
    [
        (FULL, "shared_bytes_per_s", 0, "cluster.shared_bytes_per_s"),
        (FULL, "nic.bytes_per_s", 0, "cluster.nic.bytes_per_s"),
        (BCUBE, "machines", 5, "cluster.machines"),
        (BCUBE, "topology.n", 1, "cluster.topology.n"),
        (BCUBE, "failed", {"nics": [[[0, 0], 4]]}, "cluster.failed.nics[0][1]"),
        (BCUBE, "nic.per_machine", 1, "cluster.nic.per_machine"),
        (TREE, "topology.n", 1, "cluster.topology.n"),
        (RAILS, "topology.link_bytes_per_s", 0, "cluster.topology.link_bytes_per_s"),
    ],
    ids=str,
)
def test_paths_lead_into_a_request(base: dict[str, Any], path: str, value: Any, place: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        cluster_of(typed(changed(base, path, value), ClusterDocument), "cluster")
    assert raised.value.path == place


@settings(max_examples=40)
@given(clusters())
def test_every_cluster_can_be_written_down(cluster: Cluster) -> None:
    """Speeds that are no decimals are rounded first: JSON has no thirds."""
    topology = cluster.topology
    document: dict[str, Any] = {
        **SWITCH,
        "machines": cluster.machines,
        "nic": {
            "bytes_per_s": round(cluster.nic.bytes_per_s),
            "startup_ns": cluster.nic.startup_ns,
            "per_machine": cluster.nic.per_machine,
            "message_ns": cluster.nic.message_ns,
        },
    }
    match topology:
        case BCube(n, k):
            document["topology"] = {"kind": "bcube", "n": n, "k": k}
            document["failed"] = to_builtins(failed_document(topology, cluster.failed))
        case FatTree(ports):
            document["topology"] = {"kind": "fattree", "ports": ports}
        case Rails(_, accelerators, speed, startup):
            document["topology"] = {
                "kind": "rails",
                "accelerators": accelerators,
                "link_bytes_per_s": round(speed),
                "link_startup_ns": startup,
            }
    found = read(document)
    assert fits(document)
    assert type(found.topology) is type(topology)
    assert found.failed == cluster.failed
    assert (found.workers, found.nic.per_machine) == (cluster.workers, cluster.nic.per_machine)


@settings(max_examples=60)
@given(json_values)
def test_anything_else_is_refused_with_a_path(value: Any) -> None:
    try:
        read(value)
    except InvalidInputError:
        return
    assert fits(value)
