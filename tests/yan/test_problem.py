"""What layers and problems accept, how layers are cut, and what is said of everything else."""

import re
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields as fields_of
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan.configuration import Configuration, Fixed, LayerChoice
from planner.families.yan.layers import NeuronLayer, fields
from planner.families.yan.model import estimate
from planner.families.yan.problem import (
    MAX_FIXED,
    MAX_LAYERS,
    MAX_MACHINES,
    Constants,
    Problem,
    choices,
)
from tests.formats.refused import refused
from tests.yan import neuron_oracle
from tests.yan.yan_strategies import networks


@given(networks(), st.data())
@settings(max_examples=150)
def test_cuts_are_those_of_the_oracle(chain: tuple[NeuronLayer, ...], data: st.DataObject) -> None:
    for layer in chain:
        assert layer.outputs == len(neuron_oracle.units(layer))
        assert layer.width == layer.outputs // layer.units
        assert layer.cuts in (1, layer.units)
        partitions = data.draw(st.integers(1, layer.cuts))
        passed, held = layer.passed(partitions), layer.held(partitions)
        units = Counter(neuron_oracle.unit_parts(layer, partitions).values())
        neurons = Counter(neuron_oracle.neuron_parts(layer, partitions).values())
        each = layer.neurons // layer.rows
        for p in range(partitions):
            assert units[p] == (passed[p + 1] - passed[p]) * layer.width
            assert neurons[p] == (held[p + 1] - held[p]) * each
        assert held[-1] == layer.rows
        weights = [layer.weights_in(held[p], held[p + 1]) for p in range(partitions)]
        if layer.kind == "full":
            assert sum(weights) == layer.weights
        else:
            assert set(weights) == {layer.weights}
        shares = [layer.share(layer.connections, row) for row in held]
        work = [after - before for before, after in pairwise(shares)]
        assert work == neuron_oracle.work_shares(layer, partitions)


@given(networks(min_layers=2))
@settings(max_examples=150)
def test_fields_are_those_of_the_oracle(chain: tuple[NeuronLayer, ...]) -> None:
    for layer, following in pairwise(chain):
        found, pairs = fields(layer, following), neuron_oracle.connections(layer, following)
        from_rows = Counter(unit[1] for unit, _ in pairs)
        if following.needs_all:
            assert not any((found.first, found.last, found.seen))
            assert found.into(layer, following, layer.units) == following.connections
            assert following.kind == "block" or len(pairs) == following.connections
            continue
        rows_of: dict[int, set[int]] = {}
        for unit, neuron in pairs:
            rows_of.setdefault(neuron[1], set()).add(unit[1])
        assert found.first == [min(rows_of[y]) for y in range(following.rows)]
        assert found.last == [1 + max(rows_of[y]) for y in range(following.rows)]
        assert all(len(rows_of[y]) == max(rows_of[y]) + 1 - min(rows_of[y]) for y in rows_of)
        assert found.into(layer, following, layer.units) == following.connections
        for row in range(layer.units):
            here = sum(from_rows[above] for above in range(row + 1))
            assert found.into(layer, following, row + 1) == (
                following.connections * here // len(pairs)
            )


def test_weights_and_connections_say_how_many_input_channels() -> None:
    """The first without a bias a channel."""
    for weights, connections, channels in ((6, 24, 3), (6, 16, 2), (4, 8, 1)):
        layer = NeuronLayer("c", "conv", 8, connections, weights, (2, 2, 2), 1)
        assert layer.input_channels == channels


FULL: dict[str, Any] = {"name": "f", "kind": "full", "neurons": 4, "connections": 12, "weights": 12}
CONV: dict[str, Any] = {
    "name": "c",
    "kind": "conv",
    "neurons": 2 * 6 * 5,
    "connections": 2 * 6 * 5 * 27,
    "weights": 2 * 27,
    "shape": (2, 6, 5),
    "kernel": 3,
}


@pytest.mark.parametrize(
    ("path", "message", "given", "changes"),
    [
        ("name", "expected a string, got 3", FULL, {"name": 3}),
        ("kind", "expected one of conv, full, block, got 'pool'", FULL, {"kind": "pool"}),
        ("kind", "expected one of conv, full, block, got an empty array", FULL, {"kind": []}),
        ("neurons", "expected an integer >= 1, got 0", FULL, {"neurons": 0}),
        ("connections", "expected an integer >= 1, got '12'", FULL, {"connections": "12"}),
        ("connections", "expected a multiple of neurons (4)", FULL, {"connections": 13}),
        ("weights", "expected an integer >= 1, got -1", FULL, {"weights": -1}),
        ("weights", "one a connection (12), or also a bias a neuron (16)", FULL, {"weights": 6}),
        ("weights", "got 13", FULL, {"weights": 13}),
        ("pool", "a fully connected layer has none", FULL, {"pool": 2}),
        ("stride", "a fully connected layer has none", FULL, {"stride": 2}),
        ("kernel", "a fully connected layer has none", FULL, {"kernel": 1}),
        ("shape", "a fully connected layer has none", FULL, {"shape": (4, 1, 1)}),
        ("shape", "missing: a convolution has [channels, rows, columns]", CONV, {"shape": None}),
        ("shape", "expected [channels, rows, columns], got an array", CONV, {"shape": (2, 30)}),
        ("shape", "expected [channels, rows, columns], got 60", CONV, {"shape": 60}),
        ("shape[1]", "expected an integer >= 1, got 0", CONV, {"shape": (2, 0, 5)}),
        ("shape[2]", "expected an integer >= 1, got 5.0", CONV, {"shape": (2, 6, 5.0)}),
        ("shape[0]", "expected an integer >= 1, got false", CONV, {"shape": (False, 6, 5)}),
        ("kernel", "missing: a convolution has one", CONV, {"kernel": None}),
        ("kernel", "expected an integer >= 1, got 0", CONV, {"kernel": 0}),
        ("stride", "expected an integer >= 1, got 0", CONV, {"stride": 0}),
        ("pool", "expected an integer >= 1, got 0", CONV, {"pool": 0}),
        ("pool", "expected at most 5, got 6", CONV, {"pool": 6}),
        ("neurons", "expected channels x rows x columns (60), got 61", CONV, {"neurons": 61}),
        ("connections", "5400 to 48600 for 90 input channels, got 1620", CONV, {"weights": 1620}),
        ("weights", "for each input channel", CONV, {"weights": 55}),
        ("connections", "with 54 weights 180 to 1620 for 3 input", CONV, {"connections": 1621}),
        ("connections", "180 to 1620 for 3 input channels, got 59", CONV, {"connections": 59}),
        ("weights", "for each input channel", CONV, {"weights": 2}),
        *(
            (path, "expected an integer <= ", CONV, {path.split("[")[0]: value})
            for path, value in (
                ("neurons", 2**53 + 1),
                ("connections", 2**62),
                ("weights", 10**400),
                ("stride", 2**64),
                ("pool", 2**62),
                ("kernel", 2**53 + 1),
                ("shape[0]", (2**53 + 1, 1, 1)),
                ("shape[1]", (1, 10**400, 1)),
                ("shape[2]", (1, 1, 2**62)),
            )
        ),
        (
            "connections",
            "6 weights 180 to 180 for 3 or 120 to 120 for 2 input channels, got 150",
            CONV,
            {"weights": 6, "kernel": 1, "connections": 150},
        ),
    ],
)
def test_layers_that_contradict_themselves(
    path: str, message: str, given: dict[str, Any], changes: dict[str, Any]
) -> None:
    NeuronLayer(**given)
    with refused(path, re.escape(message)):
        NeuronLayer(**{**given, **changes})


def test_a_layer_as_large_as_they_come_is_cut_at_once() -> None:
    layer = NeuronLayer("f", "full", 2**53, 2**53, 2**53)
    assert layer.held(7)[-1] == 2**53
    following = NeuronLayer("g", "full", 1, 2**53, 2**53)
    assert fields(layer, following).into(layer, following, 2**53) == 2**53
    tall = NeuronLayer("c", "conv", 2**16, 2**16, 1, (1, 2**16, 1), 1)
    assert fields(tall, tall).seen[-1] == 2**16


TALL = "no padding makes 6 rows of the 3 of 'c' with kernel 3 and stride 1"
WIDE = "no padding makes 2 columns of the 5 of 'c' with kernel 3 and stride 1"


@pytest.mark.parametrize(
    ("path", "message", "before", "following"),
    [
        ("kind", "expected 'full' after the fully connected layer 'f'", FULL, CONV),
        ("connections", "expected neurons x inputs (4 x 4 from 'f' = 16), got 12", FULL, FULL),
        ("connections", "(4 x 60 from 'c' = 240), got 12", CONV, FULL),
        ("weights", "for 3 input channels, which does not divide the 2 channels of", CONV, CONV),
        ("shape[2]", WIDE, CONV, {"shape": (1, 4, 2)}),
        ("shape[1]", TALL, {**CONV, "pool": 2}, {"shape": (1, 6, 2)}),
    ],
)
def test_layers_that_do_not_fit(
    path: str, message: str, before: dict[str, Any], following: dict[str, Any]
) -> None:
    if "kind" not in following:
        neurons = prod(following["shape"])
        given = {"neurons": neurons, "connections": 18 * neurons, "weights": 18, **following}
        following = {**CONV, "name": "d", **given}
    with refused(path, re.escape(message)):
        fields(NeuronLayer(**before), NeuronLayer(**following))


@pytest.mark.parametrize(("rows", "fits"), [(3, False), (4, True), (8, True), (9, False)])
def test_how_much_padding_is_possible(rows: int, fits: bool) -> None:
    """Six rows and kernel 3: none or up to two on each side."""
    expected: AbstractContextManager[None] = nullcontext()
    if not fits:
        expected = refused("shape[1]", f"no padding makes {rows} rows")
    with expected:
        fields(
            NeuronLayer("a", "conv", 6, 6, 1, (1, 6, 1), 1),
            NeuronLayer("b", "conv", rows, 9 * rows, 9, (1, rows, 1), 3),
        )


CONSTANTS: dict[str, Any] = {
    "muladd_ns": 0.5,
    "activation_ns": 2.0,
    "error_ns": 2,
    "latency_ns": [100000, 110000],
    "nic_bits_per_s": 1e10,
    "interference": [1.0, 1.05],
}
SCALARS = [field.name for field in fields_of(Constants) if "Sequence" not in str(field.type)]
FIRST = NeuronLayer("c", "conv", 48, 48 * 9, 18, (2, 6, 4), 3, pool=2)
LAYERS = [FIRST, NeuronLayer("f", "full", 5, 60, 65), NeuronLayer("g", "full", 3, 15, 15)]


def problem(**changes: Any) -> Problem:
    given = {"machines": 6, "cores": 2, "layers": LAYERS, "samples": 100, "read_every": 10}
    return Problem(**{**given, "constants": Constants(**CONSTANTS), **changes})


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


FEW = Constants(**{**CONSTANTS, "latency_ns": [1]})
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
        ("constants.latency_ns", "value for each of up to 2 threads, got 1", {"constants": FEW}),
        ("layers", f"expected 1 to {MAX_LAYERS} elements, got 0", {"layers": []}),
        ("layers", f"got {MAX_LAYERS + 1}", {"layers": LAYERS[1:2] * (MAX_LAYERS + 1)}),
        ("layers", "expected an array, got 3", {"layers": 3}),
        ("layers[1]", "expected a NeuronLayer, got 'f'", {"layers": [FIRST, "f"]}),
        ("layers[2].connections", "'f' = 25), got 60", {"layers": [FIRST, *LAYERS[1:2] * 2]}),
        ("layers[2].kind", "expected 'full' after", {"layers": [FIRST, LAYERS[1], FIRST]}),
        ("layers[2].weights", "3 channels of 'three'", {"layers": [THREE, THREE, TWO]}),
        ("fixed", "expected an array, got 3", {"fixed": 3}),
        ("fixed[0]", "expected a Fixed, got 3", {"fixed": [3]}),
        ("fixed", f"at most {MAX_FIXED} elements", {"fixed": [Fixed(1, 1, 1)] * (MAX_FIXED + 1)}),
    ],
)
def test_bad_problems(path: str, message: str, changes: dict[str, Any]) -> None:
    with refused(path, re.escape(message)):
        problem(**changes)


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
    with refused(f"constants.{path}", re.escape(message)):
        Constants(**{**CONSTANTS, path.split("[", maxsplit=1)[0]: value})


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
        (".layers", "as many as the network has (3), got 2", Fixed(1, 1, 1, (ALONE, ALONE))),
        *(
            (f".layers[1]{path}", message, Fixed(1, 1, 4, (ALONE, choice, ALONE)))
            for path, message, choice in (
                (".partitions", "expected an integer >= 1, got 0", LayerChoice(0, 1, 1)),
                (".partitions", "has 5 neurons, expected at most", LayerChoice(2**62, 1, 1)),
                ("", "<= workers_per_replica (4), got 6", LayerChoice(2, 1, 3)),
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
    with refused(f"fixed[1]{path}", re.escape(message)):
        problem(fixed=[Fixed(1, 1, 1), fixed])
