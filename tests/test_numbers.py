"""One opinion about numbers: every typed constructor takes those of NumPy, and keeps Python's."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import planner
from planner.families import bml, ibatch, iteration, yan
from planner.families.collectives.cost import Fabric
from planner.families.drizzle import Stage
from planner.families.drizzle.evaluation import Band, State, adjusted
from planner.families.iteration.memory import Footprint
from planner.families.yan.configuration import Fixed, LayerChoice
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.contention import Interference
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch
from planner.model.validation import MAX_VALUE, exact, integer, integers
from tests.jsonio.requests import told
from tests.perturbed import CASES

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
    "fsdp": {"tied": [(0, 0)], "blocks": [0, 2]},
    "iteration": {
        "pull_bytes": [8, 8, 8],
        "footprint": Footprint(24, 24, 1, Fraction(2)),
        "max_transfer_bytes": 300,
    },
    "overlap": {"memory_limit_bytes": 99},
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


def only_at(place: int, kind: Number) -> Number:
    """Return a function that changes the number at one place."""
    kinds: Iterator[Number] = chain(repeat(int, place), [kind], repeat(int))

    def make(value: int) -> Any:
        return next(kinds)(value)

    return make


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
    kind = wrong if callable(wrong) else lambda _: wrong
    names = fields_of(given)
    assert names
    for place, name in enumerate(names):
        put = only_at(place, kind)
        with pytest.raises(InvalidInputError, match="expected") as refused:
            make(*remade(given, put, put))
        path = refused.value.path
        assert name in path or CALLED.get(name, "none") in path


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


def test_requests_and_shares_take_numbers_of_numpy() -> None:
    band = Band(np.float32(0.25), 0.5)  # type: ignore[arg-type]
    assert (band.low, band.high) == (Fraction(1, 4), Fraction(1, 2))
    assert adjusted(band, State(4), 0.75).group_size == 8  # type: ignore[arg-type]
    request = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1], "compute_ns": [2, 6]}
    same = {"startup_ns": np.int64(4), "transfer_ns": [np.int32(3), np.uint8(1)]}
    limited = {**request, **same, "time_limit_s": np.float32(10)}
    assert planner.solve(limited)["batches"] == planner.solve(request)["batches"]
    group = {"problem": "drizzle", "compute_ns": 10**9, "tasks": 320, "max_overhead": 0.05}
    floats = {"task_ns": np.float64(390000.5), "max_overhead": np.float64(0.05)}
    plain, found = (planner.solve({**group, "task_ns": 390000.5, **more}) for more in ({}, floats))
    assert told(found) == told(plain)
