"""Clusters whose machines, NICs and topology fit together, and those where they do not."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings

from planner.model.clusters import MAX_MACHINES, Cluster, Nic, Scheduling
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, FatTree, Rails, Switch
from tests.iteration.iteration_strategies import clusters

SPEED = Fraction(10**9)
GOOD: dict[str, Any] = {
    "name": "c",
    "source": "a test",
    "machines": 4,
    "topology": Switch(4),
    "nic": Nic(SPEED, 5),
}
RAILS = {"topology": Rails(4, 8, SPEED), "nic": Nic(SPEED, 5, 8)}


def cluster(**options: Any) -> Cluster:
    return Cluster(**{**GOOD, **options})


@settings(max_examples=40)
@given(clusters())
def test_workers_are_machines_or_their_accelerators(one: Cluster) -> None:
    each = one.topology.accelerators if isinstance(one.topology, Rails) else 1
    assert one.workers == (one.machines - len(one.failed.servers)) * each


def test_memory_of_a_worker() -> None:
    assert cluster().worker_memory_bytes is None
    assert cluster(memory_bytes=7).worker_memory_bytes == 7
    assert cluster(**RAILS, memory_bytes=8 * 80 + 7).worker_memory_bytes == 80


def test_an_accelerator_s_memory_can_be_named_as_such() -> None:
    assert cluster(**RAILS, accelerator_memory_bytes=80).worker_memory_bytes == 80
    with pytest.raises(InvalidInputError, match="only with topology rails"):
        cluster(accelerator_memory_bytes=80)
    with pytest.raises(InvalidInputError, match="not together with memory_bytes"):
        cluster(**RAILS, accelerator_memory_bytes=80, memory_bytes=640)


def test_a_machine_s_memory_that_is_an_accelerator_s_is_doubted() -> None:
    (text,) = cluster(**RAILS, memory_bytes=80 * 10**9).memory_doubts
    assert "that of a machine: 74.51 GiB, 9.313 GiB for each of its 8 accelerators" in text
    assert "accelerator_memory_bytes" in text
    for sure in (
        {**RAILS, "memory_bytes": 640 * 10**9},
        {**RAILS, "accelerator_memory_bytes": 80 * 10**9},
        {"memory_bytes": 80 * 10**9},
        RAILS,
    ):
        assert cluster(**sure).memory_doubts == ()


def test_whole_numbers_are_exact_speeds() -> None:
    one = cluster(nic=Nic(3, 5), shared_bytes_per_s=7)  # type: ignore[arg-type]
    assert isinstance(one.nic.bytes_per_s, Fraction)
    assert isinstance(one.shared_bytes_per_s, Fraction)
    assert isinstance(Rails(2, 2, 5).link_bytes_per_s, Fraction)  # type: ignore[arg-type]


def test_a_fat_tree_need_not_be_full() -> None:
    for machines in range(1, 17):
        assert cluster(machines=machines, topology=FatTree(4)).workers == machines


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"name": 3}, "name"),
        ({"source": None}, "source"),
        ({"machines": 0}, "machines"),
        ({"machines": True}, "machines"),
        ({"machines": MAX_MACHINES + 1}, "machines"),
        ({"cores": 0}, "cores"),
        ({"memory_bytes": 0}, "memory_bytes"),
        ({"topology": "switch"}, "topology"),
        ({"topology": Switch(5)}, "machines"),
        ({"topology": BCube(3, 2), "nic": Nic(SPEED, 5, 2)}, "machines"),
        ({"topology": FatTree(2)}, "machines"),
        ({**RAILS, "topology": Rails(5, 8, SPEED)}, "machines"),
        ({"topology": BCube(2, 2)}, "nic.per_machine"),
        ({**RAILS, "nic": Nic(SPEED, 5, 4)}, "nic.per_machine"),
        ({"shared_bytes_per_s": 0}, "shared_bytes_per_s"),
        ({"shared_bytes_per_s": -0.5}, "shared_bytes_per_s"),
        ({**RAILS, "shared_bytes_per_s": 1}, "shared_bytes_per_s"),
        (
            {"topology": BCube(2, 2), "nic": Nic(SPEED, 5, 2), "shared_bytes_per_s": 1},
            "shared_bytes_per_s",
        ),
        (
            {
                "machines": MAX_MACHINES,
                "topology": Rails(MAX_MACHINES, 2, SPEED),
                "nic": Nic(SPEED, 5, 2),
            },
            "machines",
        ),
    ],
)
def test_clusters_that_are_none(options: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        cluster(**options)
    assert raised.value.path == path


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"bytes_per_s": 0}, "bytes_per_s"),
        ({"bytes_per_s": float("inf")}, "bytes_per_s"),
        ({"bytes_per_s": -1}, "bytes_per_s"),
        ({"startup_ns": -1}, "startup_ns"),
        ({"startup_ns": 0.5}, "startup_ns"),
        ({"message_ns": -1}, "message_ns"),
        ({"per_machine": 0}, "per_machine"),
        ({"per_machine": 1025}, "per_machine"),
    ],
)
def test_nics_that_are_none(options: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Nic(**{"bytes_per_s": SPEED, "startup_ns": 5, **options})
    assert raised.value.path == path


@pytest.mark.parametrize("path", ["task_ns", "group_ns", "constant_task_ns", "tasks_per_machine"])
def test_schedulings_that_are_none(path: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Scheduling(**{"task_ns": 1, path: -1})
    assert raised.value.path == path


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ((0, 1, SPEED), "hosts"),
        ((1, 0, SPEED), "accelerators"),
        ((1, 1, 0), "link_bytes_per_s"),
        ((1, 1, SPEED, -1), "link_startup_ns"),
    ],
)
def test_rails_that_are_none(arguments: tuple[Any, ...], path: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Rails(*arguments)
    assert raised.value.path == path
