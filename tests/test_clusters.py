"""Topologies as their papers build them, clusters of them, and what models of both refuse."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.model.clusters import MAX_MACHINES, Cluster, Nic, Scheduling
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.topologies import BCube, FatTree, Rails, Switch
from tests.iteration.iteration_strategies import clusters

Cable = tuple[int, int, int]
"""Server, level, switch of that level."""

SMALL = [BCube(n, k) for n, k in ((2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 5))]
bcubes = st.builds(BCube, st.integers(2, 9), st.integers(1, 6))


def cabled(n: int, k: int) -> tuple[int, list[int], list[Cable]]:
    """Build a BCube as its authors do: n smaller ones, and switches that join their i-th servers.

    Returns the number of servers, of switches at each level, and all cables.
    """
    if k == 0:
        return 1, [], []
    servers, switches, cables = cabled(n, k - 1)
    copied = [
        (server + copy * servers, level, switch + copy * switches[level])
        for copy in range(n)
        for server, level, switch in cables
    ]
    joining = [(one + copy * servers, k - 1, one) for copy in range(n) for one in range(servers)]
    return n * servers, [n * count for count in switches] + [servers], copied + joining


@pytest.mark.parametrize("bcube", SMALL, ids=str)
def test_bcube_is_cabled_as_its_authors_do(bcube: BCube) -> None:
    servers, switches, cables = cabled(bcube.n, bcube.k)
    assert (bcube.servers, bcube.switches, bcube.nics) == (servers, sum(switches), len(cables))
    assert {(server, level): switch for server, level, switch in cables} == {
        (server, level): bcube.switch(server, level)
        for server, level in product(range(servers), range(bcube.k))
    }
    for level, count in enumerate(switches):
        for switch in range(count):
            ends = {one for one, at, to in cables if (at, to) == (level, switch)}
            assert sorted(bcube.on_switch(level, switch)) == sorted(ends)
            assert len(ends) == bcube.n
            for server in ends:
                assert sorted([*bcube.neighbours(server, level), server]) == sorted(ends)


@given(bcubes, st.data())
def test_digits_are_the_server_in_base_n(bcube: BCube, data: st.DataObject) -> None:
    server = data.draw(st.integers(0, bcube.servers - 1))
    digits = bcube.digits(server)
    assert len(digits) == bcube.k
    assert sum(digit * bcube.n**place for place, digit in enumerate(reversed(digits))) == server
    assert bcube.server(digits) == bcube.server(list(digits)) == server
    for level, place in enumerate(reversed(range(bcube.k))):
        assert bcube.digit(server, level) == digits[place]
        rest = [*digits[:place], *digits[place + 1 :]]
        assert bcube.switch_of(rest) == bcube.switch(server, level)
        value = data.draw(st.integers(0, bcube.n - 1))
        changed = [*digits[:place], value, *digits[place + 1 :]]
        assert bcube.with_digit(server, level, value) == bcube.server(changed)


@given(bcubes, st.data())
def test_nobody_is_sent_to_by_two_in_the_same_turn(bcube: BCube, data: st.DataObject) -> None:
    level = data.draw(st.integers(0, bcube.k - 1))
    switch = data.draw(st.integers(0, bcube.servers // bcube.n - 1))
    servers = bcube.on_switch(level, switch)
    for turn in range(bcube.n - 1):
        targets = [bcube.neighbours(server, level)[turn] for server in servers]
        assert sorted(targets) == sorted(servers)


def test_the_papers_figures() -> None:
    assert (BCube(3, 2).servers, BCube(3, 2).switches) == (9, 6)
    assert BCube(16, 4).servers == 65536
    assert BCube(3, 2).digits(5) == (1, 2)
    assert FatTree(4).servers == 16
    assert (FatTree(16).servers, FatTree(16).switches) == (1024, 320)


@pytest.mark.parametrize(("n", "k"), [(2, 56), (2**30, 2), (2**62, 1)])
def test_the_largest_bcubes(n: int, k: int) -> None:
    bcube = BCube(n, k)
    last = bcube.servers - 1
    assert bcube.digits(last) == (n - 1,) * k
    assert bcube.server(bcube.digits(last)) == last
    assert bcube.switch(last, k - 1) == n ** (k - 1) - 1


def wired_fat_tree(ports: int) -> tuple[int, int]:
    """Return how many servers and switches a Fat-Tree has, cable by cable, no port left over."""
    pods, half = range(ports), range(ports // 2)
    used = Counter(("edge", pod, edge) for pod, edge, _ in product(pods, half, half))
    servers = used.total()
    for pod, edge, above in product(pods, half, half):
        used.update([("edge", pod, edge), ("aggregation", pod, above)])
    for pod, above, core in product(pods, half, half):
        used.update([("aggregation", pod, above), ("core", above, core)])
    assert set(used.values()) == {ports}
    return servers, len(used)


@pytest.mark.parametrize("ports", [2, 4, 6, 8, 16])
def test_fat_tree_is_wired_with_no_port_left_over(ports: int) -> None:
    tree = FatTree(ports)
    assert (tree.servers, tree.switches) == wired_fat_tree(ports)
    edge, pod, pods = tree.groups
    assert edge * pod * pods == tree.servers
    assert tree.switches * ports == 5 * tree.servers


def test_the_smallest_fat_tree() -> None:
    """P pods have p/2 edge switches with p/2 servers each."""
    for servers in range(1, 5000):
        ports = next(p for p in range(2, 30, 2) if p * (p // 2) ** 2 >= servers)
        assert FatTree.smallest_for(servers) == FatTree(ports)
    tree = FatTree.smallest_for(2**62)
    assert tree.servers >= 2**62 > FatTree(tree.ports - 2).servers


SPEED = Fraction(10**9)
NAMED = {"name": "c", "source": "a test", "machines": 4}
GOOD: dict[str, Any] = {**NAMED, "topology": Switch(4), "nic": Nic(SPEED, 5)}
RAILS: dict[str, Any] = {"topology": Rails(4, 8, SPEED), "nic": Nic(SPEED, 5, 8)}
CUBE: dict[str, Any] = {"topology": BCube(2, 2), "nic": Nic(SPEED, 5, 2)}
MANY = {"machines": MAX_MACHINES, "topology": Rails(MAX_MACHINES, 2, SPEED)}
BOTH = {"accelerator_memory_bytes": 80, "memory_bytes": 640}
NINE = BCube(3, 2)
LAYER: dict[str, Any] = {"name": "a", "forward_ns": 1, "backward_ns": 1, "parameter_bytes": 1}
MOST = 2**62
WRONG = "expected a number"
RANGE = f"{WRONG} from 0 to {MOST}"


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
    assert cluster(**RAILS, accelerator_memory_bytes=80).worker_memory_bytes == 80


def test_a_machine_s_memory_that_is_an_accelerator_s_is_doubted() -> None:
    (text,) = cluster(**RAILS, memory_bytes=80 * 10**9).memory_caveats
    assert "that of a machine: 74.51 GiB, 9.313 GiB for each of its 8 accelerators" in text
    assert "accelerator_memory_bytes" in text
    for sure in (
        {**RAILS, "memory_bytes": 640 * 10**9},
        {**RAILS, "accelerator_memory_bytes": 80 * 10**9},
        {"memory_bytes": 80 * 10**9},
        RAILS,
    ):
        assert cluster(**sure).memory_caveats == ()


def test_a_fat_tree_need_not_be_full() -> None:
    for machines in range(1, 17):
        assert cluster(machines=machines, topology=FatTree(4)).workers == machines


def made(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: kind(*arguments, **options)


def refused(**options: Any) -> Callable[[], Any]:
    return made(cluster, **options)


REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (made(Network, Fraction(1), -1), "startup_ns", "expected an integer >= 0, got -1"),
    (made(Network, 0), "link_bytes_per_s", "expected a number > 0, got 0"),
    (made(Network, True), "link_bytes_per_s", "expected a number > 0, got true"),
    (made(Network, MOST + 1), "link_bytes_per_s", f"{WRONG} <= {MOST}, got {MOST + 1}"),
    (made(Network, 1, 0, "1"), "reduce_ns_per_byte", f"{RANGE}, got '1'"),
    (made(Network, 1, 0, Fraction(-1, 2)), "reduce_ns_per_byte", f"{RANGE}, got -1/2"),
    (made(BCube, 1, 2), "n", "expected an integer >= 2, got 1"),
    (made(BCube, True, 2), "n", "expected an integer >= 2, got true"),
    (made(BCube, 3, 0), "k", "expected an integer >= 1, got 0"),
    *(
        (made(BCube, n, k), "k", f"expected at most 2^62 NICs, k·n^k, got BCube({n}, {k})")
        for n, k in ((2, 2**62), (2, 57), (2**31, 2))
    ),
    (made(NINE.server, [0]), "server", "expected 2 digits, got 1"),
    (made(NINE.server, [0, 0, 0]), "server", "expected 2 digits, got 3"),
    (made(NINE.server, [0, 3]), "server[1]", "expected an integer <= 2, got 3"),
    (made(NINE.server, [-1, 0]), "server[0]", "expected an integer >= 0, got -1"),
    (made(NINE.server, "01"), "server", "expected an array of digits, got '01'"),
    (made(NINE.server, 4), "server", "expected an array of digits, got 4"),
    (made(NINE.switch_of, [0, 0], "failed[3][1]"), "failed[3][1]", "expected 1 digits, got 2"),
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
    (refused(name=3), "name", "expected a string, got 3"),
    (refused(source=None), "source", "expected a string, got null"),
    (refused(machines=0), "machines", "expected an integer >= 1, got 0"),
    (refused(machines=MAX_MACHINES + 1), "machines", "expected an integer <="),
    (refused(cores=0), "cores", "expected an integer >= 1, got 0"),
    (refused(memory_bytes=0), "memory_bytes", "expected an integer >= 1, got 0"),
    (refused(topology="switch"), "topology", "expected a topology"),
    (refused(topology=Switch(5)), "machines", "the topology has 5 servers, got 4"),
    (refused(**CUBE, machines=9), "machines", "the topology has 4 servers, got 9"),
    (refused(topology=FatTree(2)), "machines", "has room for 2, got 4"),
    (refused(**RAILS, machines=5), "machines", "the topology has 4 hosts, got 5"),
    (refused(**MANY, nic=Nic(SPEED, 5, 2)), "machines", "accelerators in all"),
    (refused(topology=BCube(2, 2)), "nic.per_machine", "expected 2"),
    (refused(topology=RAILS["topology"], nic=Nic(SPEED, 5, 4)), "nic.per_machine", "expected 8"),
    (refused(shared_bytes_per_s=0), "shared_bytes_per_s", "expected a number > 0"),
    (refused(**RAILS, shared_bytes_per_s=1), "shared_bytes_per_s", "only a switch or a fattree"),
    (refused(**CUBE, shared_bytes_per_s=1), "shared_bytes_per_s", "only a switch or a fattree"),
    (refused(accelerator_memory_bytes=80), "accelerator_memory_bytes", "only with topology rails"),
    (refused(**RAILS, **BOTH), "accelerator_memory_bytes", "not together with memory_bytes"),
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
