"""What models of networks and clusters refuse: the path of the field, and what is said of it."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from planner.model.clusters import MAX_MACHINES, Cluster, Nic, Scheduling
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.topologies import BCube, FatTree, Rails, Switch
from tests.clusters_by_hand import GOOD, RAILS, SPEED

CUBE = {"topology": BCube(2, 2), "nic": Nic(SPEED, 5, 2)}
MANY = {"machines": MAX_MACHINES, "topology": Rails(MAX_MACHINES, 2, SPEED)}
LAYER = {"name": "a", "forward_ns": 1, "backward_ns": 1, "parameter_bytes": 1}


def cluster(**options: Any) -> Callable[[], Cluster]:
    return lambda: Cluster(**{**GOOD, **options})


def made(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: kind(*arguments, **options)


REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (made(Network, Fraction(1), -1), "startup_ns", "expected an integer >= 0, got -1"),
    (made(Network, 0), "link_bytes_per_s", "expected a number > 0, got 0"),
    (made(Network, True), "link_bytes_per_s", "expected a number > 0, got true"),
    (
        made(Network, 2**62 + 1),
        "link_bytes_per_s",
        f"expected a number <= {2**62}, got {2**62 + 1}",
    ),
    (
        made(Network, 1, 0, "1"),
        "reduce_ns_per_byte",
        f"expected a number from 0 to {2**62}, got '1'",
    ),
    (
        made(Network, 1, 0, Fraction(-1, 2)),
        "reduce_ns_per_byte",
        f"expected a number from 0 to {2**62}, got -1/2",
    ),
    (made(BCube, 1, 2), "n", "expected an integer >= 2, got 1"),
    (made(BCube, True, 2), "n", "expected an integer >= 2, got true"),
    (made(BCube, 3, 0), "k", "expected an integer >= 1, got 0"),
    (made(BCube, 2, 2**62), "k", f"expected at most 2^62 NICs, k·n^k, got BCube(2, {2**62})"),
    (made(BCube, 2, 57), "k", "expected at most 2^62 NICs, k·n^k, got BCube(2, 57)"),
    (made(BCube, 2**31, 2), "k", f"expected at most 2^62 NICs, k·n^k, got BCube({2**31}, 2)"),
    (made(BCube(3, 2).server, [0]), "server", "expected 2 digits, got 1"),
    (made(BCube(3, 2).server, [0, 0, 0]), "server", "expected 2 digits, got 3"),
    (made(BCube(3, 2).server, [0, 3]), "server[1]", "expected an integer <= 2, got 3"),
    (made(BCube(3, 2).server, [-1, 0]), "server[0]", "expected an integer >= 0, got -1"),
    (made(BCube(3, 2).server, "01"), "server", "expected an array of digits, got '01'"),
    (made(BCube(3, 2).server, 4), "server", "expected an array of digits, got 4"),
    (
        made(BCube(3, 2).switch_of, [0, 0], "failed[3][1]"),
        "failed[3][1]",
        "expected 1 digits, got 2",
    ),
    (made(FatTree, 0), "ports", "expected an integer >= 2, got 0"),
    (made(FatTree, 5), "ports", "expected an even number, got 5"),
    (made(FatTree, 2**22 + 2), "ports", f"expected an integer <= {2**22}, got {2**22 + 2}"),
    (made(FatTree, None), "ports", "expected an integer >= 2, got null"),
    (made(FatTree.smallest_for, 0), "servers", "expected an integer >= 1, got 0"),
    (made(FatTree.smallest_for, 2**62 + 1), "servers", "expected an integer <="),
    (made(Switch, 0), "servers", "expected an integer >= 1, got 0"),
    (made(Switch, "9"), "servers", "expected an integer >= 1, got '9'"),
    (made(Rails, 0, 1, SPEED), "hosts", "expected an integer >= 1, got 0"),
    (made(Rails, 1, 0, SPEED), "accelerators", "expected an integer >= 1, got 0"),
    (made(Rails, 1, 1, 0), "link_bytes_per_s", "expected a number > 0, got 0"),
    (made(Rails, 1, 1, SPEED, -1), "link_startup_ns", "expected an integer >= 0, got -1"),
    (made(Nic, 0, 5), "bytes_per_s", "expected a number > 0"),
    (made(Nic, float("inf"), 5), "bytes_per_s", "expected a number <="),
    (made(Nic, SPEED, -1), "startup_ns", "expected an integer >= 0, got -1"),
    (made(Nic, SPEED, 5, 1, -1), "message_ns", "expected an integer >= 0, got -1"),
    (made(Nic, SPEED, 5, 0), "per_machine", "expected an integer >= 1, got 0"),
    (made(Nic, SPEED, 5, 1025), "per_machine", "expected an integer <= 1024, got 1025"),
    (made(Scheduling, task_ns=-1), "task_ns", "expected an integer >= 0, got -1"),
    (made(Scheduling, 1, group_ns=-1), "group_ns", "expected an integer >= 0, got -1"),
    (made(Scheduling, 1, constant_task_ns=-1), "constant_task_ns", "expected an integer >= 0"),
    (made(Scheduling, 1, tasks_per_machine=0), "tasks_per_machine", "expected an integer >= 1"),
    (cluster(name=3), "name", "expected a string, got 3"),
    (cluster(source=None), "source", "expected a string, got null"),
    (cluster(machines=0), "machines", "expected an integer >= 1, got 0"),
    (cluster(machines=MAX_MACHINES + 1), "machines", "expected an integer <="),
    (cluster(cores=0), "cores", "expected an integer >= 1, got 0"),
    (cluster(memory_bytes=0), "memory_bytes", "expected an integer >= 1, got 0"),
    (cluster(topology="switch"), "topology", "expected a topology"),
    (cluster(topology=Switch(5)), "machines", "the topology has 5 servers, got 4"),
    (cluster(**CUBE, machines=9), "machines", "the topology has 4 servers, got 9"),
    (cluster(topology=FatTree(2)), "machines", "has room for 2, got 4"),
    (cluster(**RAILS, machines=5), "machines", "the topology has 4 hosts, got 5"),
    (cluster(**MANY, nic=Nic(SPEED, 5, 2)), "machines", "accelerators in all"),
    (cluster(topology=BCube(2, 2)), "nic.per_machine", "expected 2"),
    (cluster(topology=RAILS["topology"], nic=Nic(SPEED, 5, 4)), "nic.per_machine", "expected 8"),
    (cluster(shared_bytes_per_s=0), "shared_bytes_per_s", "expected a number > 0"),
    (cluster(**RAILS, shared_bytes_per_s=1), "shared_bytes_per_s", "only a switch or a fattree"),
    (cluster(**CUBE, shared_bytes_per_s=1), "shared_bytes_per_s", "only a switch or a fattree"),
    (cluster(accelerator_memory_bytes=80), "accelerator_memory_bytes", "only with topology rails"),
    (
        cluster(**RAILS, accelerator_memory_bytes=80, memory_bytes=640),
        "accelerator_memory_bytes",
        "not together with memory_bytes",
    ),
    (made(AffineCost, -1, Fraction(1)), "startup_ns", "expected an integer >= 0, got -1"),
    (made(AffineCost, True, Fraction(1)), "startup_ns", "expected an integer >= 0, got true"),
    (made(AffineCost, 1, -0.5), "ns_per_byte", "expected a number from 0"),
    (made(AffineCost, 1, Fraction(2**63)), "ns_per_byte", "expected a number from 0"),
    (made(AffineCost.from_bandwidth, 1, Fraction(0)), "bytes_per_s", "expected a number > 0"),
    (made(TableCost, ((0, 5), (1, 9), (2, 8))), "cost_table[2][1]", "expected an integer >= 9"),
    (made(Layer, **{**LAYER, "forward_ns": -1}), "forward_ns", "expected an integer >= 0, got -1"),
    (made(Layer, **{**LAYER, "parameter_bytes": 1.5}), "parameter_bytes", "expected an integer"),
    (made(Layer, **LAYER, block=True), "block", "expected an integer >= 0, got true"),
    (made(Layer, **{**LAYER, "name": 3}), "name", "expected a string, got 3"),
    (made(Layer, **LAYER, parameters="w"), "parameters", "expected names, got 'w'"),
    (made(Layer, **LAYER, parameters=("w", 3)), "parameters", "expected names, got an array"),
]


@pytest.mark.parametrize(("make", "path", "message"), REFUSED)
def test_what_cannot_be_is_refused(make: Callable[[], Any], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        make()
    assert error.value.path == path
    assert message in error.value.message
