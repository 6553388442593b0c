"""Topologies and clusters as their papers build them, and what models cannot be: where, and why."""

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.model.clusters import MAX_MACHINES, Cluster, Nic, Scheduling
from planner.model.contention import Interference
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, FatTree, Rails, Switch
from planner.model.validation import exact, integer
from planner.solving.scenarios import Scenario, ScenarioSet
from planner.solving.timeline import Interval
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


@pytest.mark.parametrize("ports", [2, 4, 6, 8, 16])
def test_fat_tree_is_wired_with_no_port_left_over(ports: int) -> None:
    """Its servers and switches are counted cable by cable."""
    tree, pods, half = FatTree(ports), range(ports), range(ports // 2)
    used = Counter(("edge", pod, edge) for pod, edge, _ in product(pods, half, half))
    servers = used.total()
    for pod, edge, above in product(pods, half, half):
        used.update([("edge", pod, edge), ("aggregation", pod, above)])
    for pod, above, core in product(pods, half, half):
        used.update([("aggregation", pod, above), ("core", above, core)])
    assert set(used.values()) == {ports}
    assert (tree.servers, tree.switches) == (servers, len(used))
    assert prod(tree.groups) == tree.servers


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


CUBE: dict[str, Any] = {"topology": BCube(2, 2), "nic": Nic(SPEED, 5, 2)}
MANY = {"machines": MAX_MACHINES, "topology": Rails(MAX_MACHINES, 2, SPEED)}
BOTH = {"accelerator_memory_bytes": 80, "memory_bytes": 640}
NINE = BCube(3, 2)
ROW: dict[str, Any] = {"name": "a", "forward_ns": 1, "backward_ns": 1, "parameter_bytes": 1}
MOST = 2**62
WRONG = "expected a number"
RANGE = f"{WRONG} from 0 to {MOST}"
F1, B1 = Op("f1", 1, "forward"), Op("b1", 1, "backward", ("f1",))
BY, READ = ("b1",), ("f1",)
W1 = Parameter("w1", 4, BY, READ)
CYCLE = (
    Op("a", 1, "forward", ("c",)),
    Op("b", 1, "forward", ("a",)),
    Op("c", 1, "forward", ("b", "before")),
    Op("before", 1, "forward"),
    Op("behind", 1, "backward", ("c",)),
)
FORWARD, BACKWARD = "cannot be updated in the forward pass", "be read in the backward pass"


def made(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: kind(*arguments, **options)


def refused(**options: Any) -> Callable[[], Any]:
    return made(cluster, **options)


SIDEWAYS = Op("f1", 1, "sideways")  # type: ignore[arg-type]
GRAPH = Graph((F1, B1), (W1,))


def profile(*layers: Layer, **options: Any) -> Profile:
    return Profile("m", layers, Provenance("synthetic", "a test"), **options)


def layer(size: int, *parameters: str, time: int = 1, **options: Any) -> Layer:
    return Layer("a", time, 2 * time, size, parameters=parameters, **options)


REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (made(Network, 0), "link_bytes_per_s", "expected a number > 0, got 0"),
    (made(Network, MOST + 1), "link_bytes_per_s", f"{WRONG} <= {MOST}, got {MOST + 1}"),
    (made(BCube, 1, 2), "n", "expected an integer >= 2, got 1"),
    (made(BCube, 3, 0), "k", "expected an integer >= 1, got 0"),
    *(
        (made(BCube, n, k), "k", f"expected at most 2^62 NICs, k·n^k, got BCube({n}, {k})")
        for n, k in ((2, 2**62), (2, 57), (2**31, 2))
    ),
    (made(NINE.server, [0]), "server", "expected 2 digits, got 1"),
    (made(NINE.server, [0, 3]), "server[1]", "expected an integer <= 2, got 3"),
    (made(NINE.server, [-1, 0]), "server[0]", "expected an integer >= 0, got -1"),
    (made(NINE.server, "01"), "server", "expected an array of digits, got '01'"),
    (made(NINE.server, 4), "server", "expected an array of digits, got 4"),
    (made(NINE.switch_of, [0, 0], "failed[3][1]"), "failed[3][1]", "expected 1 digits, got 2"),
    (made(FatTree, 0), "ports", "expected an integer >= 2, got 0"),
    (made(FatTree, 5), "ports", "expected an even number, got 5"),
    (made(FatTree, 2**22 + 2), "ports", f"expected an integer <= {2**22}, got {2**22 + 2}"),
    (made(FatTree.smallest_for, 0), "servers", "expected an integer >= 1, got 0"),
    (made(FatTree.smallest_for, 2**62 + 1), "servers", "expected an integer <="),
    (made(Switch, 0), "servers", "expected an integer >= 1, got 0"),
    (made(Rails, 0, 1, SPEED), "hosts", "expected an integer >= 1, got 0"),
    (made(Rails, 1, 0, SPEED), "accelerators", "expected an integer >= 1, got 0"),
    (made(Rails, 1, 1, 0), "link_bytes_per_s", "expected a number > 0, got 0"),
    (made(Nic, 0, 5), "bytes_per_s", "expected a number > 0"),
    (made(Nic, float("inf"), 5), "bytes_per_s", "expected a number <="),
    (made(Nic, SPEED, 5, 0), "per_machine", "expected an integer >= 1, got 0"),
    (made(Nic, SPEED, 5, 1025), "per_machine", "expected an integer <= 1024, got 1025"),
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
    (refused(accelerator_memory_bytes=80), "accelerator_memory_bytes", "only with topology rails"),
    (refused(**RAILS, **BOTH), "accelerator_memory_bytes", "not together with memory_bytes"),
    (made(AffineCost, 1, Fraction(2**63)), "ns_per_byte", "expected a number from 0"),
    (made(Interference, slowdown=Fraction(1, 2)), "slowdown", ""),
    *((made(Interval, "r", *ends, "forward", 0, "op"), "", "no") for ends in ((3, 2), (-1, 2))),
    (made(AffineCost.from_bandwidth, 1, Fraction(0)), "bytes_per_s", "expected a number > 0"),
    (made(TableCost, ((0, 5), (1, 9), (2, 8))), "cost_table[2][1]", "expected an integer >= 9"),
    (profile, "layers", "at least one layer"),
    (profile(layer(0)).chain, "layers", "parameters"),
    (profile(layer(8, gradient_bytes=0)).dataflow, "layers", "gradients to send"),
    (profile(graph=GRAPH).chain, "layers", "'m' has a dataflow graph only"),
    (made(profile, graph="a, b"), "graph", ""),
    *(
        (made(profile, layer(4, "w"), layer(0), last), "layers[2].parameters[1]", "given twice")
        for last in (layer(4, "x", "w"), layer(4, "x", "x"))
    ),
    (made(profile, layer(MOST), layer(MOST)), "layers: sum of parameter_bytes", ""),
    (made(profile, *[layer(1, time=2**61)] * 2), "layers: sum of backward_ns", ""),
    (made(Provenance, "guessed", ""), "kind", ""),
    (made(Layer, **{**ROW, "name": 3}), "name", "expected a string, got 3"),
    (made(Layer, **ROW, parameters="w"), "parameters", "expected names, got 'w'"),
    (made(Layer, **ROW, parameters=("w", 3)), "parameters", "expected names, got an array"),
    *(
        (made(Graph, ops, (W1,)), path, message)
        for ops, path, message in (
            ((), "ops", "at least one op"),
            ((F1, F1), "ops[1].name", "given twice"),
            ((SIDEWAYS, B1), "ops[0].pass", "forward or backward"),
            ((F1, Op("b1", 1, "backward", ("f11",))), "ops[1].after[0]", "did you mean 'f1'?"),
            ((F1, B1, Op("f2", 1, "forward", ("b1",))), "ops[2].after[0]", "cannot depend"),
            ((F1, Op("b1", 1, "backward")), "ops[1].after", "no forward op"),
            ((F1, B1, Op("b2", 1, "backward")), "ops[2].after", "no forward op"),
            ((F1, B1, Op("f3", 1, "forward", ("f3",))), "ops[2].after", "f3 -> f3"),
            ((Op("f1", 2**62, "forward"), B1), "ops", "sum to at most"),
            (CYCLE, "ops[0].after", "the ops form a cycle: a -> b -> c -> a"),
        )
    ),
    *(
        (made(Graph, (F1, B1), parameters), path, message)
        for parameters, path, message in (
            ((), "parameters", "at least one parameter"),
            ((W1, W1), "parameters[1].name", "given twice"),
            ((Parameter("w", 0, BY, READ),), "parameters[0].bytes", ">= 1"),
            ((Parameter("w", 1, (), READ),), "parameters[0].updated_by", "at least one"),
            ((Parameter("w", 1, ("f1",), READ),), "parameters[0].updated_by", FORWARD),
            ((Parameter("w", 1, ("b2",), READ),), "parameters[0].updated_by", "no op"),
            ((Parameter("w", 1, BY, ()),), "parameters[0].read_by", "at least one"),
            ((Parameter("w", 1, BY, ("f1", "b1")),), "parameters[0].read_by[1]", BACKWARD),
        )
    ),
    *(
        (made(Scenario, **{field: value}), field, "")
        for field, value in (
            ("computation", 0),
            ("startup", -1),
            ("bandwidth", 0),
            ("late", "x"),
            ("spread", -1),
            ("part", "end"),
        )
    ),
    (made(ScenarioSet, ()), "scenarios", ""),
    (made(ScenarioSet, ((Scenario(), 0),)), "scenarios[0].weight", ""),
    (made(ScenarioSet, ((Scenario(), 1),), 0), "percentile", ""),
    (made(ScenarioSet, ((Scenario(), 1),), 101), "percentile", ""),
    (made(exact, -1, "x"), "x", f"{RANGE}, got -1"),
    (made(exact, "1", "x"), "x", f"{RANGE}, got '1'"),
    (made(integer, True, "x"), "x", "expected an integer >= 0, got true"),
    (made(integer, None, "x", 2), "x", "expected an integer >= 2, got null"),
    (made(exact, float("inf"), "x"), "x", f"{RANGE}, got "),
    (made(exact, 0, "x", positive=True), "x", f"{WRONG} > 0, got "),
    (made(exact, Decimal("-inf"), "x", positive=True), "x", f"{WRONG} > 0, got "),
    (made(exact, Decimal("1e99999999"), "x", positive=True), "x", f"{WRONG} <= {MOST}, got "),
    (made(exact, np.float64("inf"), "x", positive=True), "x", f"{WRONG} <= {MOST}, got "),
    (made(exact, Decimal("1e-99999999"), "x"), "x", f"{WRONG} of at most 1000 decimals, got "),
]


@pytest.mark.parametrize(("make", "path", "message"), REFUSED)
def test_what_cannot_be_is_refused_with_its_place(
    make: Callable[[], Any], path: str, message: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        make()
    assert error.value.path == path
    assert message in error.value.message
