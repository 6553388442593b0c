"""Yan's problem from a profile: its layers, its times, and what is missing."""

from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families import yan
from planner.families.yan.configuration import Configuration, LayerChoice
from planner.families.yan.from_profile import neuron_layers, profiled
from planner.families.yan.windows import block_window
from planner.jsonio import decode_profile
from planner.model.errors import NotApplicableError
from planner.model.layers import Layer, graph_of_layers
from planner.model.profiles import Profile, Provenance
from tests.formats.refused import refused
from tests.iteration.making import on_switch
from tests.present import present

PROFILES = sorted((Path(__file__).parents[2] / "data/profiles").glob("*.json"))
MADE_UP = Provenance("synthetic", "made up")


def layer(name: str, kind: str, read: tuple[int, ...], made: tuple[int, ...], **more: Any) -> Layer:
    """A layer that reads and makes these shapes."""
    known = {"forward_ns": 50, "backward_ns": 70, "connections": 0, "weights": 0, **more}
    known |= {"parameter_bytes": 4 * known["weights"], "input_shape": read, "output_shape": made}
    return Layer(name, kind=kind, **known)


def conv(name: str, inputs: int, outputs: int, rows: int, kernel: int, **more: Any) -> Layer:
    """A convolution of squares with padding."""
    weights = inputs * outputs * kernel**2
    known = {"forward_ns": 600, "backward_ns": 1000, "kernel": (kernel, kernel), "stride": (1, 1)}
    known |= {"connections": weights * rows**2, "weights": weights, **more}
    return layer(name, "conv", (inputs, rows, rows), (outputs, rows, rows), **known)


SMALL = Profile(
    "small",
    (
        conv("conv", 1, 2, 4, 3),
        layer("relu", "activation", (2, 4, 4), (2, 4, 4)),
        layer("pool", "pool", (2, 4, 4), (2, 2, 2), kernel=(2, 2), stride=(2, 2)),
        layer(
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
    found = yan.estimate(problem, Configuration(1, 1, 1, (whole,) * len(layers))).layers
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
        conv("in", 1, 2, 9, 1, block=0),
        conv("a", 2, 2, 9, 3, block=1),
        conv("b", 2, 2, 9, 5, block=1),
        conv("out", 2, 2, 9, 1, block=2),
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
        layers[f"c{place}"] = layer("c", "conv", *shapes, kernel=(kernel, 1), stride=(stride, 1))
        rows = after
    window = present(block_window(layers, None, 40))
    assert window.rows == rows
    for y, needed in enumerate(reached):
        low, high = y * window.step + window.low, y * window.step + window.high
        assert needed <= set(range(low, high + 1))
        assert max(low, 0) == min(needed) or 0 in needed
    assert window.step == prod(stride for _, stride in chain)
