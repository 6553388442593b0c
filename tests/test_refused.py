"""What models cannot be: where, and what was expected."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from planner.model.clusters import MAX_MACHINES, Nic, Scheduling
from planner.model.contention import Interference
from planner.model.costs import AffineCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.topologies import BCube, FatTree, Rails, Switch
from planner.model.validation import exact, integer
from planner.solving.scenarios import Scenario, ScenarioSet
from planner.solving.timeline import Interval
from tests.test_clusters import RAILS, SPEED, cluster

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
    (made(NINE.server, [0, 0, 0]), "server", "expected 2 digits, got 3"),
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
    (refused(**CUBE, shared_bytes_per_s=1), "shared_bytes_per_s", "only a switch or a fattree"),
    (refused(accelerator_memory_bytes=80), "accelerator_memory_bytes", "only with topology rails"),
    (refused(**RAILS, **BOTH), "accelerator_memory_bytes", "not together with memory_bytes"),
    (made(AffineCost, 1, Fraction(2**63)), "ns_per_byte", "expected a number from 0"),
    (made(Interference, slowdown=Fraction(1, 2)), "slowdown", ""),
    *((made(Interval, "r", *ends, "forward", 0, "op"), "", "no") for ends in ((3, 2), (-1, 2))),
    (made(AffineCost.from_bandwidth, 1, Fraction(0)), "bytes_per_s", "expected a number > 0"),
    (made(TableCost, ((0, 5), (1, 9), (2, 8))), "cost_table[2][1]", "expected an integer >= 9"),
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
