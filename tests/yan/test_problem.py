"""What layers and problems accept, and what is said of the rest; problems from profiles."""

import re
from collections.abc import Callable
from dataclasses import fields as fields_of
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.yan import Configuration, Constants, Fixed, LayerChoice, Problem, estimate
from planner.families.yan.from_profile import neuron_layers, profiled
from planner.families.yan.layers import NeuronLayer, fields
from planner.families.yan.problem import MAX_FIXED, MAX_LAYERS, MAX_MACHINES, choices
from planner.families.yan.windows import block_window
from planner.jsonio import decode_profile
from planner.model.errors import NotApplicableError
from planner.model.layers import Layer, graph_of_layers
from planner.model.profiles import Profile, Provenance
from tests.formats.refused import refused
from tests.iteration.making import on_switch
from tests.present import present

FULL: dict[str, Any] = {"name": "f", "kind": "full", "neurons": 4, "connections": 12, "weights": 12}
SIZES = {"neurons": 2 * 6 * 5, "connections": 2 * 6 * 5 * 27, "weights": 2 * 27}
CONV: dict[str, Any] = {"name": "c", "kind": "conv", **SIZES, "shape": (2, 6, 5), "kernel": 3}
BLOCK = {**CONV, "kind": "block"}
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


def test_weights_and_connections_say_how_many_input_channels() -> None:
    """The first without a bias a channel."""
    for weights, connections, channels in ((6, 24, 3), (6, 16, 2), (4, 8, 1)):
        layer = NeuronLayer("c", "conv", 8, connections, weights, (2, 2, 2), 1)
        assert layer.input_channels == channels


def test_a_layer_as_large_as_they_come_is_cut_at_once() -> None:
    layer = NeuronLayer("f", "full", 2**53, 2**53, 2**53)
    assert layer.held(7)[-1] == 2**53
    following = NeuronLayer("g", "full", 1, 2**53, 2**53)
    assert fields(layer, following).into(layer, following, 2**53) == 2**53
    tall = NeuronLayer("c", "conv", 2**16, 2**16, 1, (1, 2**16, 1), 1)
    assert fields(tall, tall).seen[-1] == 2**16


def test_which_choices_a_layer_has() -> None:
    some = problem(partitions="powers_of_two", max_copies=2)
    assert choices(some, LAYERS[1], 5) == [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)]
    every = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (2, 2)]
    assert choices(problem(), LAYERS[2], 4) == every


def test_the_largest_counts_are_priced_exactly() -> None:
    def epoch(made: Problem) -> Fraction:
        """The time of one replica on one worker."""
        alone = tuple(LayerChoice(1, 1, 1, ((0,),)) for _ in made.layers)
        return estimate(made, Configuration(1, 1, 1, alone)).epoch

    huge = problem(samples=2**62, cores=2**62, memory_bytes=2**53, read_every=2**62)
    assert epoch(huge) > 2**62
    once = epoch(problem(samples=1, read_every=1))
    assert epoch(problem(samples=2**53 + 1, read_every=1)) == (2**53 + 1) * once


# What is refused: where, and what is said.

Row = tuple[str, str, Callable[[], object]]


def made(given: dict[str, Any]) -> Callable[..., Callable[[], object]]:
    return lambda **changes: partial(NeuronLayer, **{**given, **changes})


full, conv, block = map(made, (FULL, CONV, BLOCK))


ZERO = "expected an integer >= 1, got 0"
RANGES = "6 weights 180 to 180 for 3 or 120 to 120 for 2 input channels, got 150"
LAYER: list[Row] = [
    ("name", "expected a string, got 3", full(name=3)),
    ("kind", "expected one of conv, full, block, got 'pool'", full(kind="pool")),
    *((name, ZERO, full(**{name: 0})) for name in ("neurons", "connections", "weights")),
    *((name, ZERO, conv(**{name: 0})) for name in ("kernel", "stride", "pool")),
    ("connections", "expected a multiple of neurons (4)", full(connections=13)),
    ("weights", "one a connection (12), or also a bias a neuron (16)", full(weights=6)),
    ("pool", "a fully connected layer has none", full(pool=2)),
    ("kernel", "a fully connected layer has none", full(kernel=1)),
    ("shape", "a fully connected layer has none", full(shape=(4, 1, 1))),
    ("pool", "a block has none", block(pool=2)),
    ("stride", "a block without a kernel has none", block(kernel=None, stride=2)),
    ("shape", "missing: a convolution has [channels, rows, columns]", conv(shape=None)),
    ("shape", "expected [channels, rows, columns], got an array", conv(shape=(2, 30))),
    ("shape", "expected [channels, rows, columns], got 60", conv(shape=60)),
    ("shape[1]", ZERO, conv(shape=(2, 0, 5))),
    ("kernel", "missing: a convolution has one", conv(kernel=None)),
    ("pool", "expected at most 5, got 6", conv(pool=6)),
    ("neurons", "expected channels x rows x columns (60), got 61", conv(neurons=61)),
    ("connections", "5400 to 48600 for 90 input channels, got 1620", conv(weights=1620)),
    ("weights", "for each input channel", conv(weights=55)),
    ("weights", "for each input channel", conv(weights=2)),
    ("connections", "with 54 weights 180 to 1620 for 3 input", conv(connections=1621)),
    ("connections", "180 to 1620 for 3 input channels, got 59", conv(connections=59)),
    ("connections", RANGES, conv(weights=6, kernel=1, connections=150)),
    ("backward_ns", "missing: it comes with forward_ns", full(forward_ns=1)),
    *(
        (path, "expected an integer <= ", conv(**{path.split("[")[0]: value}))
        for path, value in (
            ("weights", 2**53 + 1),
            ("stride", 2**64),
            ("pool", 2**62),
            ("kernel", 2**53 + 1),
            ("shape[0]", (2**53 + 1, 1, 1)),
            ("shape[1]", (1, 10**400, 1)),
        )
    ),
]

TALL = "no padding makes 6 rows of the 3 of 'c' with kernel 3 and stride 1"
WIDE = "no padding makes 2 columns of the 5 of 'c' with kernel 3 and stride 1"


def pair(before: dict[str, Any], following: dict[str, Any]) -> Callable[[], object]:
    if "kind" not in following:
        neurons = prod(following["shape"])
        given = {"neurons": neurons, "connections": 18 * neurons, "weights": 18, **following}
        following = {**CONV, "name": "d", **given}
    return lambda: fields(NeuronLayer(**before), NeuronLayer(**following))


def padded(rows: int) -> Callable[[], object]:
    """Six rows and kernel 3: none or up to two rows of padding on each side."""
    before = NeuronLayer("a", "conv", 6, 6, 1, (1, 6, 1), 1)
    return lambda: fields(before, NeuronLayer("b", "conv", rows, 9 * rows, 9, (1, rows, 1), 3))


PAIR: list[Row] = [
    ("kind", "expected 'full' after the fully connected layer 'f'", pair(FULL, CONV)),
    ("kind", "got 'block' with a kernel", pair(FULL, BLOCK)),
    ("connections", "expected neurons x inputs (4 x 4 from 'f' = 16), got 12", pair(FULL, FULL)),
    ("connections", "(4 x 60 from 'c' = 240), got 12", pair(CONV, FULL)),
    ("weights", "for 3 input channels, which does not divide the 2 channels of", pair(CONV, CONV)),
    ("shape[2]", WIDE, pair(CONV, {"shape": (1, 4, 2)})),
    ("shape[1]", TALL, pair({**CONV, "pool": 2}, {"shape": (1, 6, 2)})),
    *(("shape[1]", f"no padding makes {rows} rows", padded(rows)) for rows in (3, 9)),
]

FEW = Constants(**{**CONSTANTS, "latency_ns": [1]})
TWO = NeuronLayer("two", "conv", 48, 96, 4, (2, 6, 4), 1)  # of two input channels
THREE = NeuronLayer("three", "conv", 72, 72, 3, (3, 6, 4), 1)
COUNTS = "machines", "cores", "samples", "read_every", "top", "memory_bytes", "max_copies"
CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    *((field, ZERO, {field: 0}) for field in COUNTS),
    ("machines", f"expected an integer <= {MAX_MACHINES}", {"machines": MAX_MACHINES + 1}),
    ("memory_bytes", f"an integer <= {2**53}", {"memory_bytes": 2**53 + 1}),
    ("read_model", "expected one of mean, min, max, got ", {"read_model": ["min"]}),
    ("partitions", "expected one of all, powers_of_two, got ", {"partitions": None}),
    ("machine_speeds", "expected one a machine (6), got 5", {"machine_speeds": [1] * 5}),
    ("machine_speeds", "expected at least one element", {"machine_speeds": []}),
    ("machine_speeds[5]", "expected a number > 0", {"machine_speeds": [1] * 5 + [0]}),
    ("constants", "expected Constants, got 3", {"constants": 3}),
    ("constants.latency_ns", "value for each of up to 2 threads, got 1", {"constants": FEW}),
    ("layers", f"expected 1 to {MAX_LAYERS} elements, got 0", {"layers": []}),
    ("layers", f"got {MAX_LAYERS + 1}", {"layers": LAYERS[1:2] * (MAX_LAYERS + 1)}),
    ("layers", "expected an array, got 3", {"layers": 3}),
    ("layers[1]", "expected a NeuronLayer, got 'f'", {"layers": [FIRST, "f"]}),
    ("layers[2].connections", "'f' = 25), got 60", {"layers": [FIRST, *LAYERS[1:2] * 2]}),
    ("layers[2].weights", "3 channels of 'three'", {"layers": [THREE, THREE, TWO]}),
    ("fixed", "expected an array, got 3", {"fixed": 3}),
    ("fixed[0]", "expected a Fixed, got 3", {"fixed": [3]}),
    ("fixed", f"at most {MAX_FIXED} elements", {"fixed": [Fixed(1, 1, 1)] * (MAX_FIXED + 1)}),
]
PROBLEM: list[Row] = [(path, said, partial(problem, **changes)) for path, said, changes in CHANGES]

EACH: list[tuple[str, str, Any]] = [
    *(
        (field, message, value)
        for field in SCALARS
        for message, value in (
            ("expected a number > 0, got 0", 0),
            ("expected a number <= 4611686018427387904, got ", 2**62 + 1),
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
        )
    ),
    ("interference", "<= 1024, got 1025", [1] * 1025),
]
CONSTANT: list[Row] = [
    (f"constants.{path}", message, partial(Constants, **{**CONSTANTS, path.split("[")[0]: value}))
    for path, message, value in EACH
]

ALONE = LayerChoice(1, 1, 1)
FOUR = Fixed(1, 1, 4, (LayerChoice(4, 1, 1), ALONE, ALONE))
MAPPED = ALONE, LayerChoice(1, 1, 1, ((True,),)), ALONE
FIXED: list[Row] = [
    (f"fixed[1]{path}", message, partial(problem, fixed=[Fixed(1, 1, 1), fixed]))
    for path, message, fixed in (
        ("", "expected at most machines (6), got 7", Fixed(1, 2, 3)),
        (".parameter_servers", ZERO, Fixed(0, 1, 1)),
        (".replicas", "expected an integer >= 1, got true", Fixed(1, True, 1)),
        (".workers_per_replica", f"expected an integer <= {MAX_MACHINES}", Fixed(1, 1, 10**400)),
        (".layers", "as many as the network has (3), got 2", Fixed(1, 1, 1, (ALONE, ALONE))),
        (".layers[0].partitions", "'c' has 3 rows it passes on, expected at most", FOUR),
        (".layers[1].mapping[0][0]", "integer >= 0, got true", Fixed(1, 1, 4, MAPPED)),
    )
]


@pytest.mark.parametrize(("path", "message", "make"), [*LAYER, *PAIR, *PROBLEM, *CONSTANT, *FIXED])
def test_what_means_nothing_is_refused(path: str, message: str, make: Callable[[], object]) -> None:
    for right in (FULL, CONV, BLOCK):
        NeuronLayer(**right)
    for rows in (4, 8):
        padded(rows)()
    with refused(path, re.escape(message)):
        make()


# From a profile: its layers, its times, and what is missing.

PROFILES = sorted((Path(__file__).parents[2] / "data/profiles").glob("*.json"))
MADE_UP = Provenance("synthetic", "made up")


def stage(name: str, kind: str, read: tuple[int, ...], made: tuple[int, ...], **more: Any) -> Layer:
    """A layer that reads and makes these shapes."""
    fields = {"forward_ns": 50, "backward_ns": 70, "connections": 0, "weights": 0, **more}
    fields |= {"parameter_bytes": 4 * fields["weights"], "input_shape": read, "output_shape": made}
    return Layer(name, kind=kind, **fields)


def convolution(name: str, inputs: int, outputs: int, rows: int, kernel: int, **more: Any) -> Layer:
    """A convolution of squares with padding."""
    weights = inputs * outputs * kernel**2
    known = {"forward_ns": 600, "backward_ns": 1000, "kernel": (kernel, kernel), "stride": (1, 1)}
    known |= {"connections": weights * rows**2, "weights": weights, **more}
    return stage(name, "conv", (inputs, rows, rows), (outputs, rows, rows), **known)


SMALL = Profile(
    "small",
    (
        convolution("conv", 1, 2, 4, 3),
        stage("relu", "activation", (2, 4, 4), (2, 4, 4)),
        stage("pool", "pool", (2, 4, 4), (2, 2, 2), kernel=(2, 2), stride=(2, 2)),
        stage(
            "fc", "full", (8,), (3,), forward_ns=300, backward_ns=500, connections=24, weights=27
        ),
    ),
    MADE_UP,
    batch_size=4,
)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_shipped_profile_is_taken_and_its_times_are_predicted(path: Path) -> None:
    """Uncut layers take what was measured: forward alone, backward in update and error terms."""
    profile = decode_profile(path.read_bytes())
    scale, samples = Fraction(1, 50), 5 * present(profile.batch_size)
    made = profiled(profile, on_switch(4, 1000), samples, computation=scale)
    assert made.assumptions
    problem = made.problem
    layers, whole = problem.layers, LayerChoice(1, 1, 1, ((0,),))
    found = estimate(problem, Configuration(1, 1, 1, (whole,) * len(layers))).layers
    assert problem.samples == 5
    assert sum(layer.weights for layer in layers) == sum(
        layer.weights or 0 for layer in profile.layers
    )
    assert sum(layer.forward_ns or 0 for layer in layers) == scale * profile.forward_ns
    assert sum(layer.backward_ns or 0 for layer in layers) == scale * profile.backward_ns
    for place, layer in enumerate(layers):
        assert found[place].forward_computation == 5 * present(layer.forward_ns)
        before = found[place - 1].backward_computation if place else Fraction(0)
        own = found[place].weight_update + before
        assert own == 5 * (layer.backward_ns or 0)
    assert sum(layer.cuts > 1 for layer in layers) > len(layers) // 3


def test_layers_of_a_small_profile() -> None:
    first, second = neuron_layers(SMALL)
    assert (first.name, first.kind, first.shape) == ("conv", "block", (4, 2, 1))
    assert (first.kernel, first.stride, first.cuts) == (4, 2, 2)
    assert first.forward_ns == 700
    assert first.backward_ns == 1140
    assert (second.kind, second.neurons, second.connections) == ("full", 3, 24)
    problem = profiled(SMALL, on_switch(3, 1000), 40, read_every=8, read_model="max").problem
    assert (problem.samples, problem.read_every, problem.read_model) == (10, 2, "max")


@pytest.mark.parametrize("field", ["kind", "output_shape", "connections", "weights", "kernel"])
def test_what_is_missing_is_named(field: str) -> None:
    without: dict[str, Any] = {field: None}
    layers = (replace(SMALL.layers[0], **without), *SMALL.layers[1:])
    with refused(f"layers[0].{field}", "of layer 'conv'.*planner profile records it"):
        profiled(replace(SMALL, layers=layers), on_switch(3, 1000), 10)


def test_without_a_batch_size_or_layers_there_is_no_problem() -> None:
    graph_only = replace(SMALL, layers=(), graph=SMALL.dataflow())
    for path, profile in (("batch_size", replace(SMALL, batch_size=None)), ("layers", graph_only)):
        with refused(path, ""):
            profiled(profile, on_switch(3, 1000), 10)
    with pytest.raises(NotApplicableError):
        profiled(SMALL, on_switch(1, 1000), 10)


@pytest.mark.parametrize(("joined", "kernel"), [(True, 5), (False, 7)])
def test_windows_of_branches_are_joined_and_those_in_a_row_composed(
    joined: bool, kernel: int
) -> None:
    """But for what mixes positions: it is not cut."""
    layers = (
        convolution("in", 1, 2, 9, 1, block=0),
        convolution("a", 2, 2, 9, 3, block=1),
        convolution("b", 2, 2, 9, 5, block=1),
        convolution("out", 2, 2, 9, 1, block=2),
    )
    links = [(0, 1), (0, 2), (1, 3), (2, 3)] if joined else [(0, 1), (1, 2), (2, 3)]
    graph = graph_of_layers(layers, links)
    found = neuron_layers(Profile("p", layers, MADE_UP, 1, graph))
    assert [layer.kernel for layer in found] == [1, kernel, 1]
    assert found[1].weights == sum(layer.weights or 0 for layer in layers[1:3])
    mixing = (*layers[:2], replace(layers[2], kind="attention"), layers[3])
    found = neuron_layers(Profile("p", mixing, MADE_UP, 1, graph))
    assert [layer.cuts for layer in found] == [9, 1, 9]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=4))
def test_a_window_holds_the_rows_that_reach_a_row(chain: list[tuple[int, int]]) -> None:
    """Against rows followed one by one."""
    rows, layers, reached = 40, {}, [{row} for row in range(40)]
    for place, (kernel, stride) in enumerate(chain):
        after = -(-rows // stride)
        padding = (after - 1) * stride + kernel - rows
        if not -stride < padding <= 2 * (kernel - 1):
            return
        tops = [y * stride - (max(0, padding) + 1) // 2 for y in range(after)]
        reached = [set().union(*reached[max(0, top) : top + kernel]) for top in tops]
        shapes = (1, rows, 1), (1, after, 1)
        layers[f"c{place}"] = stage("c", "conv", *shapes, kernel=(kernel, 1), stride=(stride, 1))
        rows = after
    window = present(block_window(layers, None, 40))
    assert window.rows == rows
    for y, needed in enumerate(reached):
        low, high = y * window.step + window.low, y * window.step + window.high
        assert needed <= set(range(low, high + 1))
        assert max(low, 0) == min(needed) or 0 in needed
    assert window.step == prod(stride for _, stride in chain)
