"""One opinion about numbers: every typed constructor takes those of NumPy, and keeps Python's."""

import dataclasses
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.families import bigdl, bml, caramel, drizzle, fsdp, ibatch, iteration, overlap, yan
from planner.families.collectives.cost import Fabric
from planner.families.drizzle import Stage
from planner.families.drizzle.evaluation import Band, State, adjusted
from planner.families.iteration.memory import Footprint
from planner.families.yan.configuration import Fixed, LayerChoice
from planner.model.clusters import Cluster, Nic, Scheduling
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, FatTree, Rails, Switch
from planner.model.validation import MAX_VALUE, exact, integer, integers

Number = Callable[[int], Any]

WHOLE: dict[str, Number] = {
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint64": np.uint64,
}
EXACT: dict[str, Number] = {
    **WHOLE,
    "float": float,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "Decimal": Decimal,
    "Fraction": Fraction,
}


def graph(n: Number = int) -> Graph:
    ops = (Op("f", n(3), "forward"), Op("b", n(5), "backward", ("f",)))
    return Graph(ops, (Parameter("w", n(8), ("b",), ("f",)),))


def profile(n: Number = int) -> Profile:
    layer = Layer("a", n(1), n(2), n(8), n(8), n(4), n(2), n(1), n(1), n(1), ("w",), n(4))
    return Profile("p", (layer,), Provenance(kind="synthetic", source="a test"), batch_size=n(4))


def cluster(n: Number = int, x: Number = int) -> Cluster:
    return Cluster(
        "c",
        "s",
        n(4),
        Switch(n(4)),
        nic(n, x),
        n(2),
        n(100),
        x(7),
        Scheduling(n(1), n(2), n(3), n(2)),
    )


def nic(n: Number = int, x: Number = int) -> Nic:
    return Nic(x(9), n(3), n(2), n(1))


def network(n: Number = int, x: Number = int) -> Network:
    return Network(x(9), n(3), x(2))


def constants(x: Number = int) -> yan.Constants:
    return yan.Constants(x(1), x(2), x(3), [x(4), x(5)], x(6), [x(1), x(2)], x(32), x(16))


def yan_problem(n: Number = int, x: Number = int) -> yan.Problem:
    conv = yan.NeuronLayer(
        "c",
        "conv",
        n(32),
        n(288),
        n(18),
        shape=(n(2), n(4), n(4)),
        kernel=n(3),
        stride=n(1),
        pool=n(1),
    )
    full = yan.NeuronLayer("f", "full", n(4), n(128), n(128))
    fixed = Fixed(
        n(1), n(1), n(1), (LayerChoice(n(1), n(1), n(1), ()), LayerChoice(n(1), n(1), n(1), ()))
    )
    return yan.Problem(
        machines=n(4),
        cores=n(2),
        layers=[conv, full],
        constants=constants(x),
        samples=n(9),
        read_every=n(3),
        max_copies=n(2),
        memory_bytes=n(100),
        machine_speeds=[x(1)] * 4,
        fixed=[fixed],
        top=n(3),
    )


def drizzle_problem(n: Number = int, x: Number = int) -> drizzle.Problem:
    return drizzle.Problem(
        compute_ns=n(100),
        tasks=n(3),
        group_ns=x(2),
        task_ns=x(1),
        constant_task_ns=x(0),
        max_overhead=0.5,
        max_group_ns=n(120),
        stages=[Stage("a", n(3))],
    )


def fsdp_problem(n: Number = int, x: Number = int) -> fsdp.Problem:
    cost = AffineCost(n(3), x(2))
    return fsdp.Problem(
        forward_ns=[n(5), n(6)],
        backward_ns=(n(7), n(8)),
        parameter_bytes=[n(9), n(4)],
        gradient_bytes=[n(9), n(4)],
        activation_bytes=[n(3), n(2)],
        checkpoint_bytes=[n(1), n(1)],
        meshes=[fsdp.Mesh(shards=n(2), replicas=n(1), all_gather=cost, reduce_scatter=cost)],
        memory_bytes=n(500),
        optimiser=x(2),
        tied=[(n(0), n(0))],
        blocks=[n(0)],
        element_bytes=n(2),
    )


MAKERS: dict[str, Callable[[Number, Number], Any]] = {
    "AffineCost": lambda n, x: AffineCost(n(3), x(2)),
    "from_bandwidth": lambda n, x: AffineCost.from_bandwidth(n(3), x(2)),
    "TableCost": lambda n, _: TableCost(((n(1), n(2)), (n(3), n(4)))),
    "DepthCost": lambda n, x: DepthCost(((n(1), AffineCost(n(3), x(2))),)),
    "Network": network,
    "Nic": nic,
    "Cluster": cluster,
    "Fabric": lambda n, _: Fabric(n(4), n(2), n(1)),
    "BCube": lambda n, _: BCube(n(3), n(2)),
    "FatTree": lambda n, _: FatTree(n(4)),
    "Rails": lambda n, x: Rails(n(2), n(4), x(9), n(1)),
    "Graph": lambda n, _: graph(n),
    "Profile": lambda n, _: profile(n),
    "ibatch.Problem": lambda n, _: ibatch.Problem(
        compute_ns=(n(1), n(2)), startup_ns=n(3), transfer_ns=(n(4), n(5))
    ),
    "ibatch.Problem of sizes": lambda n, x: ibatch.Problem(
        compute_ns=[n(1), n(2)],
        layer_bytes=[n(8), n(9)],
        cost=AffineCost(n(3), x(2)),
        max_batch_bytes=n(20),
    ),
    "caramel.Problem": lambda n, x: caramel.Problem(
        graph(n),
        AffineCost(n(3), x(2)),
        workers=n(4),
        servers=n(2),
        seed=n(1),
        threshold_bytes=n(9),
        element_bytes=n(4),
    ),
    "bml.Problem": lambda n, x: bml.Problem(
        BCube(n(3), n(2)), network(n, x), n(24), (n(12), n(12)), n(4)
    ),
    "bigdl.Problem": lambda n, x: bigdl.Problem(
        elements=n(9),
        element_bytes=n(4),
        nodes=n(3),
        partitions_per_node=n(2),
        network=network(n, x),
    ),
    "drizzle.Problem": drizzle_problem,
    "fsdp.Problem": fsdp_problem,
    "drizzle.Problem of tasks": lambda n, x: dataclasses.replace(
        drizzle_problem(n, x), stages=(), tasks=n(3)
    ),
    "Band": lambda n, x: Band(x(0), x(0), x(2), n(1), n(8)),
    "State": lambda n, _: State(n(3)),
    "yan.Problem": yan_problem,
    "iteration.Problem": lambda n, x: iteration.Problem(
        graph(n),
        cluster(n, x),
        pull_bytes=[n(8)],
        footprint=Footprint(n(8), n(8), n(1), x(2)),
        max_transfer_bytes=n(8),
        element_bytes=n(4),
        seed=n(1),
    ),
    "overlap.Problem": lambda n, _: overlap.Problem(
        nodes=[overlap.Node("a", (), n(3)), overlap.Node("s", (n(0),)), overlap.Node("w", (n(1),))],
        kinds=[overlap.Kind("k", "0", ((n(1), n(2)), (n(3), n(4))))],
        collectives=[overlap.Collective(n(1), n(2), n(0), n(8), n(1), n(1), n(8), n(8))],
        tensors=[overlap.Tensor(n(8), n(0), (n(1), n(2)))],
        memory_limit_bytes=n(99),
    ),
    "iteration.from_profile": lambda n, x: iteration.Problem.from_profile(
        profile(n), cluster(n, x), computation=x(2), optimiser=x(1), activation_bytes=n(4)
    ),
}


def numbers_in(value: Any) -> list[Any]:
    """Return every number that an instance keeps."""
    if dataclasses.is_dataclass(value):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return [number for field in fields for number in numbers_in(field)]
    if isinstance(value, dict):
        return numbers_in(list(value.values()))
    if isinstance(value, list | tuple | frozenset):
        return [number for one in value for number in numbers_in(one)]
    return [] if value is None or isinstance(value, str | bool) else [value]


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_numbers_of_numpy_are_numbers(maker: Callable[[Number, Number], Any]) -> None:
    plain = maker(int, int)
    for whole in WHOLE.values():
        for number in EXACT.values():
            made = maker(whole, number)
            assert made == plain
            for kept in numbers_in(made):
                assert type(kept) in (int, Fraction), kept
                assert type(getattr(kept, "numerator", 0)) is int


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    "wrong", [bool, np.bool_, str, lambda _: float("nan"), lambda _: np.float64("nan"), complex]
)
def test_what_is_no_number_is_refused(
    maker: Callable[[Number, Number], Any], wrong: Callable[[int], Any]
) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        maker(wrong, int)
    if number_in_use(maker):
        with pytest.raises(InvalidInputError, match="expected"):
            maker(int, wrong)


def number_in_use(maker: Callable[[Number, Number], Any]) -> bool:
    asked: list[int] = []

    def seen(value: int) -> int:
        asked.append(value)
        return value

    maker(int, seen)
    return bool(asked)


@given(st.integers(0, 2**62), st.sampled_from([np.int64, np.uint64]))
def test_integers_of_numpy_never_wrap(value: int, kind: Callable[[int], Any]) -> None:
    assert integer(kind(value), "n") == value
    assert sum(integers(np.array([value, value, value]), "n")) == 3 * value
    assert exact(kind(value), "n") * 4 == 4 * value


# The largest float shows as 4.611686018427388e+18, which is above the largest number.
@given(st.floats(0, MAX_VALUE, exclude_max=True) | st.floats(0, 100, width=32).map(np.float32))
def test_floats_are_the_decimals_they_show(value: Any) -> None:
    kept = exact(value, "x")
    assert type(value)(str(value)) == value
    assert kept == Fraction(str(value)) == exact(Decimal(str(value)), "x")


def test_a_tenth_is_a_tenth() -> None:
    for tenth in (0.1, np.float16(0.1), np.float32(0.1), np.float64(0.1), Decimal("0.1")):
        assert exact(tenth, "x") == Fraction(1, 10)
        assert AffineCost(0, tenth).ns_per_byte == Fraction(1, 10)  # type: ignore[arg-type]


def test_a_share_may_be_any_number() -> None:
    band = Band(np.float32(0.25), 0.5)  # type: ignore[arg-type]
    assert (band.low, band.high) == (Fraction(1, 4), Fraction(1, 2))
    assert adjusted(band, State(4), 0.75).group_size == 8  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "positive", "expected"),
    [
        (-1, False, f"a number from 0 to {MAX_VALUE}"),
        (float("inf"), False, f"a number from 0 to {MAX_VALUE}"),
        (0, True, "a number > 0"),
        (Decimal("-inf"), True, "a number > 0"),
        (Decimal("1e99999999"), True, f"a number <= {MAX_VALUE}"),
        (np.float64("inf"), True, f"a number <= {MAX_VALUE}"),
        (Decimal("1e-99999999"), False, "a number of at most 1000 decimals"),
    ],
)
def test_what_is_out_of_range(value: Any, positive: bool, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=f"x: expected {expected}, got "):
        exact(value, "x", positive=positive)


def test_requests_take_numbers_of_numpy() -> None:
    request = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1], "compute_ns": [2, 6]}
    same = {
        **request,
        "startup_ns": np.int64(4),
        "transfer_ns": [np.int32(3), np.uint8(1)],
        "time_limit_s": np.float32(10),
    }
    assert planner.solve(same)["batches"] == planner.solve(request)["batches"]
