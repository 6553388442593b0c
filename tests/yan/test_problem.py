"""What a problem accepts, and what it says of everything else."""

from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from planner.families.yan.configuration import Configuration, Fixed, LayerChoice
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import estimate
from planner.families.yan.problem import (
    MAX_FIXED,
    MAX_LAYERS,
    MAX_MACHINES,
    Constants,
    Problem,
    choices,
)
from planner.model.errors import InvalidInputError

CONSTANTS: dict[str, Any] = {
    "muladd_ns": 0.5,
    "activation_ns": 2.0,
    "error_ns": 2,
    "latency_ns": [100000, 110000],
    "nic_bits_per_s": 1e10,
    "interference": [1.0, 1.05],
}
SCALARS = [field.name for field in fields(Constants) if "Sequence" not in str(field.type)]
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


def test_numbers_are_kept_as_written() -> None:
    made = Constants(**{**CONSTANTS, "muladd_ns": 0.1, "error_ns": Decimal("0.30")})
    assert (made.muladd_ns, made.error_ns) == (Fraction(1, 10), Fraction(3, 10))
    assert made.nic_bits_per_s == 10**10
    assert made.interference == (1, Fraction(21, 20))
    assert made.bits_per_activation == made.bits_per_weight == 32
    assert problem(machine_speeds=[0.1] * 6).machine_speeds == (Fraction(1, 10),) * 6


def test_threads_run_up_to_cores_and_interference() -> None:
    assert problem(cores=1).threads == 1
    assert problem(cores=16).threads == 2
    more = Constants(**{**CONSTANTS, "interference": [1, 1, 1]})
    assert problem(cores=2, constants=more).threads == 2


@pytest.mark.parametrize(
    ("machines", "uniform"), [(None, True), ([2] * 6, True), ([2] * 5 + [1], False)]
)
def test_which_machines_are_alike(machines: Any, uniform: bool) -> None:
    assert problem(machine_speeds=machines).uniform is uniform


def test_which_choices_a_layer_has() -> None:
    some = problem(partitions="powers_of_two", max_copies=2)
    assert choices(some, LAYERS[1], 5) == [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)]
    every = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (2, 2)]
    assert choices(problem(), LAYERS[2], 4) == every


def epoch(made: Problem) -> Fraction:
    """The time of one replica on one worker."""
    alone = tuple(LayerChoice(1, 1, 1, ((0,),)) for _ in made.layers)
    return estimate(made, Configuration(1, 1, 1, alone)).epoch


def test_the_largest_counts_are_priced_exactly() -> None:
    huge = problem(samples=2**62, cores=2**62, memory_bytes=2**53, read_every=2**62)
    assert epoch(huge) > 2**62
    once = epoch(problem(samples=1, read_every=1))
    assert epoch(problem(samples=2**53 + 1, read_every=1)) == (2**53 + 1) * once


TWO = NeuronLayer("two", "conv", 48, 96, 4, (2, 6, 4), 1)  # of two input channels
THREE = NeuronLayer("three", "conv", 72, 72, 3, (3, 6, 4), 1)


@pytest.mark.parametrize(
    ("path", "message", "changes"),
    [
        *(
            (field, f"expected an integer >= 1, got {shown}", {field: value})
            for field in ("machines", "cores", "samples", "read_every", "top", "memory_bytes")
            for value, shown in ((0, "0"), (1.0, "1.0"), (True, "true"), (float("nan"), "NaN"))
        ),
        ("machines", f"expected an integer <= {MAX_MACHINES}", {"machines": MAX_MACHINES + 1}),
        ("cores", "expected an integer <= ", {"cores": 10**400}),
        ("memory_bytes", f"an integer <= {2**53}", {"memory_bytes": 2**53 + 1}),
        ("read_model", "expected one of mean, min, max, got ", {"read_model": ["min"]}),
        ("partitions", "expected one of all, powers_of_two, got ", {"partitions": None}),
        ("machine_speeds", "expected one a machine (6), got 5", {"machine_speeds": [1] * 5}),
        ("machine_speeds", "expected one a machine (6), got 7", {"machine_speeds": [1] * 7}),
        ("machine_speeds", "expected at least one element", {"machine_speeds": []}),
        ("machine_speeds", "expected an array, got 2", {"machine_speeds": 2}),
        ("machine_speeds", "expected an array, got '111111'", {"machine_speeds": "111111"}),
        ("machine_speeds[5]", "expected a number > 0", {"machine_speeds": [1] * 5 + [0]}),
        ("constants", "expected Constants, got 3", {"constants": 3}),
        (
            "constants.latency_ns",
            "expected a value for each of up to 2 threads, got 1",
            {"constants": Constants(**{**CONSTANTS, "latency_ns": [1]})},
        ),
        ("layers", f"expected 1 to {MAX_LAYERS} elements, got 0", {"layers": []}),
        ("layers", f"got {MAX_LAYERS + 1}", {"layers": LAYERS[1:2] * (MAX_LAYERS + 1)}),
        ("layers", "expected an array, got 3", {"layers": 3}),
        ("layers[1]", "expected a NeuronLayer, got 'f'", {"layers": [CONV, "f"]}),
        ("layers[2].connections", "'f' = 25), got 60", {"layers": [CONV, *LAYERS[1:2] * 2]}),
        ("layers[2].kind", "expected 'full' after", {"layers": [CONV, LAYERS[1], CONV]}),
        ("layers[2].weights", "3 channels of 'three'", {"layers": [THREE, THREE, TWO]}),
        ("fixed", "expected an array, got 3", {"fixed": 3}),
        ("fixed[0]", "expected a Fixed, got 3", {"fixed": [3]}),
        ("fixed", f"at most {MAX_FIXED} elements", {"fixed": [Fixed(1, 1, 1)] * (MAX_FIXED + 1)}),
    ],
)
def test_bad_problems(path: str, message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        problem(**changes)
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("path", "message", "value"),
    [
        *(
            (field, message, value)
            for field in SCALARS
            for message, value in (
                ("expected a number > 0, got 0", 0),
                ("expected a number > 0, got sNaN", Decimal("sNaN")),
                ("expected a number <= 4611686018427387904, got ", 2**62 + 1),
                ("expected a number of at most 150 decimals, got ", 5e-324),
                ("expected a number of at most 150 decimals, got ", Fraction(1, 10**400)),
            )
        ),
        *(
            (f"{field}{place}", message, value)
            for field in ("latency_ns", "interference")
            for place, message, value in (
                ("", "expected at least one element, got an empty array", []),
                ("", "expected an array, got null", None),
                ("", "expected an array, got '12'", "12"),
                ("", "expected an array, got an object", {1: 2}),
                ("[1]", "expected a number > 0, got -1", [1, -1]),
                ("[0]", "expected a number <= 4611686018427387904", [10**400, 1]),
            )
        ),
        ("interference", "<= 1024, got 1025", [1] * 1025),
    ],
)
def test_bad_constants(path: str, message: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Constants(**{**CONSTANTS, path.split("[", maxsplit=1)[0]: value})
    assert caught.value.path == f"constants.{path}"
    assert message in caught.value.message


ALONE = LayerChoice(1, 1, 1)


def test_fixed_configurations_are_accepted() -> None:
    fitting = (LayerChoice(3, 2, 1), LayerChoice(2, 1, 2, ((0, 1), (3, 2))), ALONE)
    for layers in (None, fitting):
        assert problem(fixed=[Fixed(2, 1, 4, layers)]).fixed == (Fixed(2, 1, 4, layers),)


@pytest.mark.parametrize(
    ("path", "message", "fixed"),
    [
        ("", "expected at most machines (6), got 7", Fixed(1, 2, 3)),
        ("", "expected at most machines (6), got 7", Fixed(6, 1, 1)),
        (".parameter_servers", "expected an integer >= 1, got 0", Fixed(0, 1, 1)),
        (".replicas", "expected an integer >= 1, got true", Fixed(1, True, 1)),
        (".workers_per_replica", f"expected an integer <= {MAX_MACHINES}", Fixed(1, 1, 10**400)),
        (
            ".layers",
            "as many as the network has (3), got 2",
            Fixed(1, 1, 1, (ALONE, ALONE)),
        ),
        *(
            (f".layers[1]{path}", message, Fixed(1, 1, 4, (ALONE, choice, ALONE)))
            for path, message, choice in (
                (".partitions", "expected an integer >= 1, got 0", LayerChoice(0, 1, 1)),
                (".partitions", "has 5 neurons, expected at most", LayerChoice(2**62, 1, 1)),
                (".threads", "expected at most 2 (cores, ", LayerChoice(1, 3, 1)),
                (".copies", "expected an integer >= 1, got 0", LayerChoice(1, 1, 0)),
                ("", "<= workers_per_replica (4), got 6", LayerChoice(2, 1, 3)),
                (".mapping", "expected 1 arrays of 2 workers", LayerChoice(1, 1, 2, ((0,),))),
                (".mapping[0][1]", "worker 0 given twice", LayerChoice(1, 1, 2, ((0, 0),))),
                (".mapping[0][0]", "integer >= 0, got true", LayerChoice(1, 1, 1, ((True,),))),
                (".mapping[0][0]", "integer <= 3", LayerChoice(1, 1, 1, ((10**400,),))),
            )
        ),
        (
            ".layers[0].partitions",
            "'c' has 3 rows it passes on, expected at most",
            Fixed(1, 1, 4, (LayerChoice(4, 1, 1), ALONE, ALONE)),
        ),
    ],
)
def test_bad_fixed_configurations(path: str, message: str, fixed: Fixed) -> None:
    with pytest.raises(InvalidInputError) as caught:
        problem(fixed=[Fixed(1, 1, 1), fixed])
    assert caught.value.path == f"fixed[1]{path}"
    assert message in caught.value.message
