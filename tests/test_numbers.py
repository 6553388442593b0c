"""One opinion about numbers, and what models cannot be.

Every typed constructor takes the numbers of NumPy, and keeps Python's.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import planner
from planner.families import bml, ibatch, iteration, overlap, yan
from planner.families.collectives.cost import Fabric
from planner.families.drizzle import Stage
from planner.families.drizzle.evaluation import Band, State, adjusted
from planner.families.iteration.memory import Footprint
from planner.families.yan.configuration import Fixed, LayerChoice
from planner.model.clusters import MAX_MACHINES, Cluster, Nic, Scheduling
from planner.model.contention import Interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch
from planner.model.validation import MAX_VALUE, exact, integer, integers
from planner.solving.scenarios import Scenario, ScenarioSet
from planner.solving.timeline import Interval
from tests.jsonio.requests import told
from tests.perturbed import CASES
from tests.test_clusters import RAILS, SPEED, cluster

Number = Callable[[int], Any]

WHOLE: tuple[Number, ...] = (np.int16, np.int32, np.int64, np.uint64)
EXACT = (*WHOLE, float, np.float16, np.float32, np.float64, Decimal, Fraction)

NAN = float("nan")
LINE = AffineCost(3, Fraction(2))
OPS = Op("f", 3, "forward"), Op("b", 5, "backward", ("f",))
GRAPH = Graph(OPS, (Parameter("w", 8, ("b",), ("f",)),))
LAYER = Layer("a", 1, 2, 8, 8, 4, 2, 1, 1, 1, ("w",), 4)
PROFILE = Profile("p", (LAYER,), Provenance("synthetic", "a test"), batch_size=4)
NIC = Nic(Fraction(9), 3, 2, 1)
CLUSTER = Cluster("c", "s", 4, Switch(4), NIC, 2, 100, Fraction(7), Scheduling(1, 2, 3, 2))
NETWORK = Network(Fraction(9), 3, Fraction(2))
RATE = Fraction(4)
CHOICE = LayerChoice(1, 1, 1, ())

MORE: dict[str, dict[str, Any]] = {
    "caramel": {"threshold_bytes": 9},
    "bml": {"failed": Failures()},
    "yan": {
        "max_copies": 2,
        "machine_speeds": [Fraction(1)] * 4,
        "fixed": [Fixed(1, 1, 1, (CHOICE, CHOICE))],
        "top": 3,
    },
    "drizzle": {"max_group_ns": 6000, "stages": [Stage("a", 4)]},
    "fsdp": {"checkpoint_bytes": [5, 5, 5, 5], "tied": [(0, 0)], "blocks": [0, 2]},
    "iteration": {
        "pull_bytes": [8, 8, 8],
        "footprint": Footprint(24, 24, 1, Fraction(2)),
        "max_transfer_bytes": 300,
    },
    "overlap": {"tensors": [overlap.Tensor(8, 0, (1, 2))], "memory_limit_bytes": 99},
}
PROBLEMS: dict[str, Any] = {
    name: replace(case.example, **MORE.get(name, {})) for name, case in CASES.items()
}
"""A problem of each family with numbers in all fields."""

MADE: dict[str, Any] = {
    **{type(one).__name__: one for one in (LINE, NETWORK, NIC, CLUSTER, GRAPH, PROFILE)},
    "TableCost": TableCost(((1, 2), (3, 4))),
    "DepthCost": DepthCost(((1, LINE),)),
    "Fabric": Fabric(4, 2, 1),
    "Interference": Interference(1, Fraction(2), Fraction(3), 4),
    "BCube": BCube(3, 2),
    "FatTree": FatTree(4),
    "Rails": Rails(2, 4, Fraction(9), 1),
    "Band": Band(Fraction(0), Fraction(0), Fraction(2), 1, 8),
    "State": State(3),
    "Constants": yan.Constants(RATE, RATE, RATE, [RATE, RATE], RATE, [RATE, RATE], RATE, RATE),
    **PROBLEMS,
    "bml of layers": bml.Problem(BCube(3, 2), NETWORK, 24, (12, 12), 4),
    "ibatch of sizes": ibatch.Problem(
        compute_ns=[1, 2], layer_bytes=[8, 9], cost=LINE, max_batch_bytes=20
    ),
    "yan with memory": replace(PROBLEMS["yan"], memory_bytes=100),
    "drizzle of tasks": replace(PROBLEMS["drizzle"], stages=(), tasks=3),
}

MAKERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "from_bandwidth": (AffineCost.from_bandwidth, (3, Fraction(2))),
    "iteration.from_profile": (
        lambda profile, cluster, computation, optimiser, kept: iteration.Problem.from_profile(
            profile, cluster, computation=computation, optimiser=optimiser, activation_bytes=kept
        ),
        (PROFILE, CLUSTER, Fraction(2), Fraction(1), 4),
    ),
    **{name: (lambda one: one, (one,)) for name, one in MADE.items()},
}
"""What takes numbers, and what it is given."""


def remade(value: Any, whole: Number, exact: Number) -> Any:
    """Return the value, made again, with other kinds of integers and of whole fractions."""
    again = partial(remade, whole=whole, exact=exact)
    if is_dataclass(value) and not isinstance(value, type):
        known = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return type(value)(**{name: again(one) for name, one in known.items()})
    if isinstance(value, list | tuple | frozenset):
        return type(value)(map(again, value))
    if isinstance(value, Fraction) and value.denominator == 1:
        return exact(int(value))
    return whole(value) if type(value) is int else value


def holding(kind: Number) -> Number:
    """Return what makes numbers of a kind, and leaves those that it cannot hold as they are."""

    def make(value: int) -> Any:
        try:
            with np.errstate(over="raise"):
                made = kind(value)
        except (FloatingPointError, OverflowError):
            return value
        return made if made == value else value

    return make


CALLED = {"by_depth": "depths", "duration_ns": ".ns", "points": "cost", "size_bytes": ".bytes"}
"""How requests call the fields that they do not call by their names."""


def fields_of(value: Any, field: str = "") -> list[str]:
    """Return the field of each number that `remade` makes again, in this order."""
    if is_dataclass(value):
        known = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        return [name for key, one in known.items() for name in fields_of(one, key)]
    if isinstance(value, list | tuple | frozenset):
        return [name for one in value for name in fields_of(one, field)]
    counted = type(value) is int or (isinstance(value, Fraction) and value.denominator == 1)
    return [field] if counted else []


class Wrong:
    """Makes another thing of one number: the one that is met at a place, the first at 1."""

    def __init__(self, place: int, kind: Number) -> None:
        self.left, self.kind = place, kind

    def __call__(self, value: int) -> Any:
        self.left -= 1
        return self.kind(value) if self.left == 0 else value


def numbers_in(value: Any) -> list[Any]:
    """Return every number that an instance keeps."""
    if is_dataclass(value):
        return numbers_in([getattr(value, field.name) for field in fields(value)])
    if isinstance(value, dict):
        return numbers_in(list(value.values()))
    if isinstance(value, list | tuple | frozenset):
        return [number for one in value for number in numbers_in(one)]
    return [] if value is None or isinstance(value, str | bool) else [value]


@pytest.mark.parametrize(("make", "given"), MAKERS.values(), ids=MAKERS)
def test_numbers_of_numpy_are_numbers(make: Callable[..., Any], given: tuple[Any, ...]) -> None:
    plain = make(*given)
    for whole in WHOLE:
        for number in EXACT:
            made = make(*remade(given, holding(whole), holding(number)))
            assert made == plain
            for kept in numbers_in(made):
                assert type(kept) in (int, Fraction), kept
                assert type(getattr(kept, "numerator", 0)) is int


@pytest.mark.parametrize(("make", "given"), MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("wrong", [bool, np.bool_, str, complex, NAN, np.float64(NAN), -1])
def test_what_is_no_number_or_below_0_is_refused_with_the_field_where_it_stands(
    make: Callable[..., Any], given: tuple[Any, ...], wrong: Any
) -> None:
    def kind(value: int) -> Any:
        return wrong(value) if callable(wrong) else wrong

    names = fields_of(given)
    assert names
    for place, name in enumerate(names, 1):
        put = Wrong(place, kind)
        with pytest.raises(InvalidInputError, match="expected") as refused:
            make(*remade(given, put, put))
        path = refused.value.path
        assert name in path or CALLED.get(name, "none") in path
        assert put.left <= 0


@given(st.integers(0, 2**62), st.sampled_from([np.int64, np.uint64]))
def test_integers_of_numpy_never_wrap(value: int, kind: Callable[[int], Any]) -> None:
    assert integer(kind(value), "n") == value
    assert sum(integers(np.array([value, value, value]), "n")) == 3 * value
    assert exact(kind(value), "n") * 4 == 4 * value


# The largest float shows as 4.611686018427388e+18, which is above the largest number.
@given(st.floats(0, MAX_VALUE, exclude_max=True) | st.floats(0, 100, width=32).map(np.float32))
@example(0.1)
@example(np.float16(0.1))
@example(np.float32(0.1))
def test_floats_are_the_decimals_they_show(value: Any) -> None:
    kept = exact(value, "x")
    assert type(value)(str(value)) == value
    assert kept == Fraction(str(value)) == exact(Decimal(str(value)), "x")
    assert AffineCost(0, value).ns_per_byte == kept


def test_a_share_may_be_any_number() -> None:
    band = Band(np.float32(0.25), 0.5)  # type: ignore[arg-type]
    assert (band.low, band.high) == (Fraction(1, 4), Fraction(1, 2))
    assert adjusted(band, State(4), 0.75).group_size == 8  # type: ignore[arg-type]


def test_requests_take_numbers_of_numpy() -> None:
    request = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1], "compute_ns": [2, 6]}
    same = {"startup_ns": np.int64(4), "transfer_ns": [np.int32(3), np.uint8(1)]}
    limited = {**request, **same, "time_limit_s": np.float32(10)}
    assert planner.solve(limited)["batches"] == planner.solve(request)["batches"]
    group = {"problem": "drizzle", "compute_ns": 10**9, "tasks": 320, "max_overhead": 0.05}
    floats = {"task_ns": np.float64(390000.5), "max_overhead": np.float64(0.05)}
    plain, found = (planner.solve({**group, "task_ns": 390000.5, **more}) for more in ({}, floats))
    assert told(found) == told(plain)


# ---
# What models cannot be: where, and what was expected.


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
