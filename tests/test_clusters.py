"""Topologies as their papers build them, and clusters of them."""

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.model.clusters import Cluster, Nic
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
    for level, switch in {(level, switch) for _, level, switch in cables}:
        ends = sorted(one for one, *joined in cables if joined == [level, switch])
        assert sorted(bcube.on_switch(level, switch)) == ends
        assert len(ends) == bcube.n
        for server in ends:
            assert sorted([*bcube.neighbours(server, level), server]) == ends
        for targets in zip(*(bcube.neighbours(server, level) for server in ends), strict=True):
            assert sorted(targets) == ends  # nobody is sent to by two in the same turn


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


def test_the_papers_figures() -> None:
    small, tree = BCube(3, 2), FatTree(16)
    assert (small.servers, small.switches, small.digits(5)) == (9, 6, (1, 2))
    assert BCube(16, 4).servers == 65536
    assert (FatTree(4).servers, tree.servers, tree.switches) == (16, 1024, 320)


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
RAILS: dict[str, Any] = {"topology": Rails(4, 8, SPEED), "nic": Nic(SPEED, 5, 8)}


def cluster(**options: Any) -> Cluster:
    known = {"name": "c", "source": "a test", "machines": 4}
    return Cluster(**{**known, "topology": Switch(4), "nic": Nic(SPEED, 5), **options})


@settings(max_examples=40)
@given(clusters())
def test_workers_are_machines_or_their_accelerators(one: Cluster) -> None:
    each = one.topology.accelerators if isinstance(one.topology, Rails) else 1
    assert one.workers == (one.machines - len(one.failed.servers)) * each


def test_memory_of_a_worker_and_doubts_that_a_machine_s_is_an_accelerator_s() -> None:
    sure: tuple[tuple[dict[str, Any], int | None], ...] = (
        ({}, None),
        ({"memory_bytes": 80 * 10**9}, 80 * 10**9),
        (RAILS, None),
        ({**RAILS, "memory_bytes": 640 * 10**9 + 7}, 80 * 10**9),
        ({**RAILS, "accelerator_memory_bytes": 80}, 80),
    )
    for options, memory in sure:
        made = cluster(**options)
        assert (made.worker_memory_bytes, made.memory_caveats) == (memory, ())
    (text,) = cluster(**RAILS, memory_bytes=80 * 10**9).memory_caveats
    assert "that of a machine: 74.51 GiB, 9.313 GiB for each of its 8 accelerators" in text
    assert "accelerator_memory_bytes" in text
