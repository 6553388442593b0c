"""Clusters whose machines, NICs and topology fit together, and those where they do not."""

from fractions import Fraction
from typing import Any

from hypothesis import given, settings

from planner.model.clusters import Cluster, Nic
from planner.model.topologies import FatTree, Rails
from tests.clusters_by_hand import GOOD, RAILS
from tests.iteration.iteration_strategies import clusters


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
