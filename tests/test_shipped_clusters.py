"""The clusters in ``data/clusters/``: complete, consistent, and as their sources print them."""

import json
import re
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from planner.jsonio.clusters import decode_cluster
from tests import schemas

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "data" / "clusters"
GIGABIT = 10**9
# Machines, line rate of a NIC in bits per second, NICs of a machine: what the sources print.
PRINTED = {
    "ibatch-72": (72, 10 * GIGABIT, 1),
    "caramel-8": (8, 10 * GIGABIT, 1),
    "caramel-16": (16, 10 * GIGABIT, 1),
    "yan-20": (20, 10 * GIGABIT, 1),
    "bml-bcube": (9, 40 * GIGABIT, 2),
    "bml-switch": (9, 40 * GIGABIT, 1),
    "drizzle-32": (32, 10 * GIGABIT, 1),
    "drizzle-64": (64, 10 * GIGABIT, 1),
    "h100-8": (8, 400 * GIGABIT, 8),
    "h100-32": (32, 400 * GIGABIT, 8),
    "a10g-16": (16, 25 * GIGABIT, 1),
    "office-4": (4, 10 * GIGABIT, 1),
    "h100ib-10": (10, 400 * GIGABIT, 8),
    "a100dgx-2": (2, 200 * GIGABIT, 8),
    "h100dgx-1": (1, 400 * GIGABIT, 8),
    "a100pair-1": (1, 200 * GIGABIT, 4),
    "h100pair-1": (1, 400 * GIGABIT, 4),
}
MEMORY = {"caramel": 12 * 2**30, "yan": 64 * 2**30, "drizzle": 61 * 2**30, "h100": 640 * 10**9}


def load(name: str) -> dict[str, Any]:
    cluster: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return cluster


def test_all_clusters_are_there() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_numbers_are_those_the_sources_print(name: str) -> None:
    cluster = load(name)
    machines, bits_per_s, nics = PRINTED[name]
    assert cluster["name"] == name
    assert cluster["machines"] == machines
    assert 8 * cluster["nic"]["bytes_per_s"] == bits_per_s
    assert cluster["nic"]["per_machine"] == nics
    paper = name.partition("-")[0]
    if paper in MEMORY:
        assert cluster["memory_bytes"] == MEMORY[paper]


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("field", ["startup_ns", "message_ns"])
def test_start_ups_are_said_to_be_assumed_and_lie_within_their_range(name: str, field: str) -> None:
    cluster = load(name)
    (note,) = (one for one in cluster["notes"] if re.match(rf"(nic\.)?{field} .*assumed", one))
    found = re.search(r"([0-9.]+) to ([0-9.]+) (µs|ms)", note)
    assert found is not None
    scale = {"µs": 1_000, "ms": 1_000_000}[found[3]]
    least, most = (Fraction(found[at]) * scale for at in (1, 2))
    assert least <= cluster["nic"][field] <= most
    assert cluster["nic"]["message_ns"] < cluster["nic"]["startup_ns"]


def test_drizzles_constant_lies_within_what_its_figures_allow() -> None:
    least, most = (Fraction(900_000_000, tasks) for tasks in (3000, 2050))
    for name in ("drizzle-32", "drizzle-64"):
        assert least <= load(name)["scheduling"]["task_ns"] <= most


@pytest.mark.parametrize("name", PRINTED)
def test_every_file_decodes_to_what_it_says(name: str) -> None:
    cluster, given = decode_cluster((FOLDER / f"{name}.json").read_bytes()), load(name)
    assert (cluster.name, cluster.source) == (given["name"], given["source"])
    assert list(cluster.notes) == given["notes"]
    assert (cluster.machines, cluster.cores) == (given["machines"], given["cores"])
    assert cluster.memory_bytes == given.get("memory_bytes")
    assert cluster.shared_bytes_per_s == given.get("shared_bytes_per_s")
    assert asdict(cluster.nic) == given["nic"]
    assert (cluster.scheduling and asdict(cluster.scheduling)) == given.get("scheduling")
    accelerators = given["topology"].get("accelerators", 1)
    assert cluster.workers == given["machines"] * accelerators
    if cluster.memory_bytes is not None:
        assert cluster.worker_memory_bytes == given["memory_bytes"] // accelerators


def test_the_page_lists_every_cluster() -> None:
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    table = page.partition("## The shipped clusters")[2].partition("\n\n**")[0]
    assert set(re.findall(r"`([a-z0-9]+-(?:[0-9]+|bcube|switch))`", table)) == set(PRINTED)


def test_the_schema_holds_for_every_file() -> None:
    for path in FOLDER.glob("*.json"):
        schemas.validate(json.loads(path.read_text()), "cluster")
    with pytest.raises(schemas.ValidationError):
        schemas.validate({**load("office-4"), "machines": 0}, "cluster")
