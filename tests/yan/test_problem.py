"""What a problem accepts, and what it says of everything else."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.yan.configuration import Configuration, Fixed, LayerChoice
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import estimate
from planner.families.yan.problem import MAX_FIXED, MAX_LAYERS, MAX_MACHINES, Constants, Problem
from planner.families.yan.segments import check
from planner.model.errors import InvalidInputError
from tests.yan.yan_strategies import any_configurations, configurations, problems

CONSTANTS: dict[str, Any] = {
    "muladd_ns": 0.5,
    "activation_ns": 2.0,
    "error_ns": 2,
    "latency_ns": [100000, 110000],
    "nic_bits_per_s": 1e10,
    "interference": [1.0, 1.05],
}
CONV = NeuronLayer("c", "conv", 48, 48 * 9, 18, (2, 6, 4), 3, pool=2)
LAYERS = [CONV, NeuronLayer("f", "full", 5, 60, 65), NeuronLayer("g", "full", 3, 15, 15)]


def problem(**changes: Any) -> Problem:
    given = {
        "machines": 6,
        "cores": 2,
        "layers": LAYERS,
        "constants": Constants(**CONSTANTS),
        "samples": 100,
        "read_every": 10,
    }
    return Problem(**{**given, **changes})


def refused(path: str, message: str, make: Any, **changes: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make(**changes)
    assert caught.value.path == path
    assert message in caught.value.message


@given(problems(speeds=True, memory=True), st.data())
def test_strategies_make_valid_problems_and_configurations(
    made: Problem, data: st.DataObject
) -> None:
    assert made.threads == min(made.cores, len(made.constants.interference))
    assert len(made.fields) == len(made.layers) - 1
    anything = replace(made, memory_bytes=None)
    for strategy in (configurations, any_configurations):
        configuration = data.draw(strategy(made))
        check(anything, configuration)
        fixed = Fixed(
            configuration.parameter_servers,
            configuration.replicas,
            configuration.workers_per_replica,
            configuration.layers,
        )
        assert replace(made, fixed=[fixed]).fixed == (fixed,)


def test_numbers_are_kept_as_written() -> None:
    made = Constants(**{**CONSTANTS, "muladd_ns": 0.1, "error_ns": Decimal("0.30")})
    assert made.muladd_ns == Fraction(1, 10)
    assert made.error_ns == Fraction(3, 10)
    assert made.nic_bits_per_s == 10**10
    assert made.interference == (1, Fraction(21, 20))
    assert made.bits_per_activation == made.bits_per_weight == 32
    assert problem(machine_speeds=[0.1] * 6).machine_speeds == (Fraction(1, 10),) * 6


def test_threads_run_up_to_cores_and_interference() -> None:
    assert problem(cores=1).threads == 1
    assert problem(cores=16).threads == 2
    more = Constants(**{**CONSTANTS, "interference": [1, 1, 1], "latency_ns": [1, 1]})
    assert problem(cores=2, constants=more).threads == 2
    refused(
        "constants.latency_ns",
        "expected a value for each of up to 3 threads, got 2",
        problem,
        cores=3,
        constants=more,
    )


@pytest.mark.parametrize(
    ("machines", "uniform"), [(None, True), ([2] * 6, True), ([2] * 5 + [1], False)]
)
def test_which_machines_are_alike(machines: Any, uniform: bool) -> None:
    assert problem(machine_speeds=machines).uniform is uniform


NUMBERS = [
    "muladd_ns",
    "activation_ns",
    "error_ns",
    "nic_bits_per_s",
    "bits_per_activation",
    "bits_per_weight",
]
NOT_POSITIVE = [
    (0, "0"),
    (-1, "-1"),
    (-0.5, "-0.5"),
    (float("nan"), "NaN"),
    (Decimal("NaN"), "NaN"),
    (Decimal("sNaN"), "sNaN"),
    (float("-inf"), "-Infinity"),
    (True, "true"),
    (False, "false"),
    ("1", "'1'"),
    (None, "null"),
    ([1], "an array"),
    (1j, "1j"),
]
TOO_LARGE = [
    float("inf"),
    Decimal("inf"),
    2**62 + 1,
    10**400,
    1e300,
    Decimal("1e400"),
    Decimal("1e99999999"),
    Fraction(10**400),
]
TOO_FINE = [5e-324, Decimal("1e-400"), Decimal("1e-99999999"), Fraction(1, 10**400)]


@pytest.mark.parametrize("field", NUMBERS)
def test_constants_are_positive_numbers(field: str) -> None:
    for value, shown in NOT_POSITIVE:
        message = f"expected a number > 0, got {shown}"
        refused(f"constants.{field}", message, Constants, **{**CONSTANTS, field: value})
    for value in TOO_LARGE:
        message = "expected a number <= 4611686018427387904, got "
        refused(f"constants.{field}", message, Constants, **{**CONSTANTS, field: value})
    for value in TOO_FINE:
        message = "expected a number of at most 150 decimals, got "
        refused(f"constants.{field}", message, Constants, **{**CONSTANTS, field: value})
    largest = Constants(**{**CONSTANTS, field: 2**62})
    assert estimate_all(problem(constants=largest)) > 0


def estimate_all(made: Problem) -> Fraction:
    """The time of one replica on one worker."""
    alone = tuple(LayerChoice(1, 1, 1, ((0,),)) for _ in made.layers)
    return estimate(made, Configuration(1, 1, 1, alone)).epoch


@pytest.mark.parametrize("field", ["latency_ns", "interference"])
def test_constants_by_threads(field: str) -> None:
    def wrong(value: Any, path: str, message: str) -> None:
        path = f"constants.{field}{path}"
        refused(path, message, Constants, **{**CONSTANTS, field: value})

    wrong([], "", "expected at least one element, got an empty array")
    arrays: list[tuple[Any, str]] = [
        (3, "3"),
        ("12", "'12'"),
        (None, "null"),
        ({1: 2}, "an object"),
    ]
    for value, shown in arrays:
        wrong(value, "", f"expected an array, got {shown}")
    for value, shown in NOT_POSITIVE:
        wrong([1, value], "[1]", f"expected a number > 0, got {shown}")
    for value in TOO_LARGE:
        wrong([value, 1], "[0]", "expected a number <= 4611686018427387904")


def test_too_many_threads() -> None:
    many = {**CONSTANTS, "interference": [1] * 1025, "latency_ns": [1] * 1025}
    refused("constants.interference", "<= 1024, got 1025", Constants, **many)


COUNTS = ["machines", "cores", "samples", "read_every", "top", "memory_bytes"]


@pytest.mark.parametrize("field", COUNTS)
def test_counts(field: str) -> None:
    wrong: list[tuple[Any, str]] = [
        (0, "0"),
        (-3, "-3"),
        (1.0, "1.0"),
        (True, "true"),
        ("6", "'6'"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        ([6], "an array"),
    ]
    if field != "memory_bytes":
        wrong.append((None, "null"))
    for value, shown in wrong:
        refused(field, f"expected an integer >= 1, got {shown}", problem, **{field: value})
    for value in (2**62 + 1, 2**64, 10**400):
        refused(field, "expected an integer <= ", problem, **{field: value})


def test_the_largest_counts_are_priced_exactly() -> None:
    huge = problem(samples=2**62, cores=2**62, memory_bytes=2**53, read_every=2**62)
    assert estimate_all(huge) > 2**62
    once = estimate_all(problem(samples=1, read_every=1))
    assert estimate_all(problem(samples=2**53 + 1, read_every=1)) == (2**53 + 1) * once


def test_amounts_that_are_too_large() -> None:
    refused("memory_bytes", f"an integer <= {2**53}", problem, memory_bytes=2**53 + 1)
    refused(
        "fixed", f"at most {MAX_FIXED} elements", problem, fixed=[Fixed(1, 1, 1)] * (MAX_FIXED + 1)
    )


@pytest.mark.parametrize("value", ["most", "", None, 1, ["min"], True])
def test_choices_of_words(value: Any) -> None:
    refused("read_model", "expected one of mean, min, max, got ", problem, read_model=value)
    refused("partitions", "expected one of all, powers_of_two, got ", problem, partitions=value)


def test_speeds() -> None:
    field = "machine_speeds"
    for count in (5, 7):
        message = f"expected one a machine (6), got {count}"
        refused(field, message, problem, **{field: [1] * count})
    refused(field, "expected at least one element", problem, **{field: []})
    refused(field, "expected an array, got 2", problem, **{field: 2})
    refused(field, "expected an array, got '111111'", problem, **{field: "111111"})
    for value, shown in NOT_POSITIVE:
        message = f"expected a number > 0, got {shown}"
        refused(f"{field}[5]", message, problem, **{field: [1] * 5 + [value]})
    for value in TOO_LARGE:
        message = "expected a number <= "
        refused(f"{field}[0]", message, problem, **{field: [value] + [1] * 5})


def test_layers_of_a_problem() -> None:
    refused("layers", f"expected 1 to {MAX_LAYERS} elements, got 0", problem, layers=[])
    refused(
        "layers",
        f"{MAX_LAYERS} elements, got {MAX_LAYERS + 1}",
        problem,
        layers=LAYERS[1:2] * (MAX_LAYERS + 1),
    )
    refused("layers", "expected an array, got 3", problem, layers=3)
    refused("layers[1]", "expected a NeuronLayer, got 'f'", problem, layers=[CONV, "f"])
    refused("layers[0]", "expected a NeuronLayer, got null", problem, layers=[None])
    refused(
        "layers[2].connections",
        "expected neurons x inputs (5 x 5 from 'f' = 25), got 60",
        problem,
        layers=[CONV, LAYERS[1], LAYERS[1]],
    )
    refused(
        "layers[2].kind",
        "expected 'full' after the fully connected layer 'f', got 'conv'",
        problem,
        layers=[CONV, LAYERS[1], CONV],
    )
    two = NeuronLayer("two", "conv", 48, 96, 4, (2, 6, 4), 1)  # of two input channels
    three = NeuronLayer("three", "conv", 72, 72, 3, (3, 6, 4), 1)
    refused(
        "layers[2].weights",
        "for 2 input channels, which does not divide the 3 channels of 'three'",
        problem,
        layers=[three, three, two],
    )


def choice(*given: Any) -> LayerChoice:
    return LayerChoice(*given)


ALONE = choice(1, 1, 1, ())
FITTING = (choice(3, 2, 1, ()), choice(2, 1, 2, ((0, 1), (3, 2))), ALONE)


def test_fixed_configurations_are_accepted() -> None:
    for layers in (None, FITTING):
        made = problem(fixed=[Fixed(2, 1, 4, layers)])
        assert made.fixed == (Fixed(2, 1, 4, layers),)


@pytest.mark.parametrize(
    ("path", "message", "fixed"),
    [
        ("", "expected at most machines (6), got 7", Fixed(1, 2, 3)),
        ("", "expected at most machines (6), got 7", Fixed(6, 1, 1)),
        (".parameter_servers", "expected an integer >= 1, got 0", Fixed(0, 1, 1)),
        (".replicas", "expected an integer >= 1, got true", Fixed(1, True, 1)),
        (".workers_per_replica", "expected an integer >= 1, got 1.0", Fixed(1, 1, 1.0)),  # type: ignore[arg-type]
        (".workers_per_replica", f"expected an integer <= {MAX_MACHINES}", Fixed(1, 1, 10**400)),
        (".layers", "as many as the network has (3), got 2", Fixed(1, 1, 1, (ALONE, ALONE))),
    ],
)
def test_fixed_triples(path: str, message: str, fixed: Fixed) -> None:
    refused(f"fixed[1]{path}", message, problem, fixed=[Fixed(1, 1, 1), fixed])


@pytest.mark.parametrize(
    ("place", "path", "message", "given"),
    [
        (0, ".partitions", "'c' has 3 rows it passes on, expected at most", choice(4, 1, 1, ())),
        (2, ".partitions", "'g' has 3 neurons, expected at most", choice(4, 1, 1, ())),
        (1, ".partitions", "expected an integer >= 1, got 0", choice(0, 1, 1, ())),
        (1, ".partitions", "has 5 neurons, expected at most", choice(2**62, 1, 1, ())),
        (1, ".partitions", "expected an integer <= ", choice(10**400, 1, 1, ())),
        (1, ".threads", "expected an integer >= 1, got 0", choice(1, 0, 1, ())),
        (1, ".threads", "expected at most 2 (cores, ", choice(1, 3, 1, ())),
        (1, ".copies", "expected an integer >= 1, got 0", choice(1, 1, 0, ())),
        (1, "", "partitions x copies <= workers_per_replica (4), got 6", choice(2, 1, 3, ())),
        (1, "", "<= workers_per_replica (4), got 4611686018427387904", choice(1, 1, 2**62, ())),
        (1, ".mapping", "expected 2 arrays of 1 workers", choice(2, 1, 1, ((0,),))),
        (1, ".mapping", "expected 1 arrays of 2 workers", choice(1, 1, 2, ((0,),))),
        (1, ".mapping[1][0]", "worker 3 given twice", choice(2, 1, 1, ((3,), (3,)))),
        (1, ".mapping[0][1]", "worker 0 given twice", choice(1, 1, 2, ((0, 0),))),
        (1, ".mapping[0][0]", "expected an integer <= 3, got 4", choice(1, 1, 1, ((4,),))),
        (1, ".mapping[0][0]", "expected an integer >= 0, got -1", choice(1, 1, 1, ((-1,),))),
        (1, ".mapping[0][0]", "expected an integer >= 0, got true", choice(1, 1, 1, ((True,),))),
        (1, ".mapping[0][0]", "expected an integer <= 3", choice(1, 1, 1, ((10**400,),))),
    ],
)
def test_fixed_layers(place: int, path: str, message: str, given: LayerChoice) -> None:
    layers = tuple(given if at == place else ALONE for at in range(3))
    full_path = f"fixed[0].layers[{place}]{path}"
    refused(full_path, message, problem, fixed=[Fixed(1, 1, 4, layers)])
