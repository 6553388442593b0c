"""Yan's problem from a profile: its layers, its times, and what is missing."""

from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yan_brute_force import brute_force

from planner.families import yan
from planner.families.yan.configuration import Configuration, LayerChoice, canonical_mapping
from planner.families.yan.from_profile import ProfiledProblem, neuron_layers, profiled
from planner.families.yan.windows import block_window
from planner.jsonio import decode_profile
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.layers import Layer, graph_of_layers
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import Switch
from planner.solving.deadline import Deadline
from tests.yan import neuron_oracle

PROFILES = sorted((Path(__file__).parents[2] / "data/profiles").glob("*.json"))


def shipped(path: Path) -> Profile:
    return decode_profile(path.read_bytes())


def machines(count: int, startup_ns: int = 1000) -> Cluster:
    return Cluster("c", "made up", count, Switch(count), Nic(Fraction(10**9), startup_ns))


def conv(name: str, inputs: int, outputs: int, rows: int, kernel: int, **more: int) -> Layer:
    """A convolution of squares with padding; more: block, forward_ns, backward_ns."""
    return Layer(
        name,
        more.get("forward_ns", 600),
        more.get("backward_ns", 1000),
        4 * inputs * outputs * kernel**2,
        block=more.get("block"),
        kind="conv",
        input_shape=(inputs, rows, rows),
        output_shape=(outputs, rows, rows),
        kernel=(kernel, kernel),
        stride=(1, 1),
        connections=inputs * outputs * (rows * kernel) ** 2,
        weights=inputs * outputs * kernel**2,
    )


def light(name: str, kind: str, read: tuple[int, ...], made: tuple[int, ...]) -> Layer:
    window = (2, 2) if kind == "pool" else None
    return Layer(
        name,
        50,
        70,
        0,
        kind=kind,
        input_shape=read,
        output_shape=made,
        kernel=window,
        stride=window,
        connections=0,
        weights=0,
    )


def full(name: str, inputs: int, outputs: int) -> Layer:
    return Layer(
        name,
        300,
        500,
        4 * (inputs + 1) * outputs,
        kind="full",
        input_shape=(inputs,),
        output_shape=(outputs,),
        connections=inputs * outputs,
        weights=(inputs + 1) * outputs,
    )


def small(batch_size: int | None = 4, graph: Graph | None = None) -> Profile:
    layers = (
        conv("conv", 1, 2, 4, 3),
        light("relu", "activation", (2, 4, 4), (2, 4, 4)),
        light("pool", "pool", (2, 4, 4), (2, 2, 2)),
        full("fc", 8, 3),
    )
    return Profile("small", layers, Provenance("synthetic", "made up"), batch_size, graph)


def alone(made: ProfiledProblem) -> yan.Estimate:
    """What an epoch takes on one worker and one server, nothing cut."""
    count = len(made.problem.layers)
    mappings = canonical_mapping([(1, 1)] * count, 1)
    layers = tuple(LayerChoice(1, 1, 1, mapping) for mapping in mappings)
    return yan.estimate(made.problem, Configuration(1, 1, 1, layers))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_shipped_profile_is_taken_and_its_times_are_predicted(path: Path) -> None:
    """Uncut layers take what was measured: forward alone, backward in update and error terms."""
    profile = shipped(path)
    assert profile.batch_size is not None
    made = profiled(profile, machines(4), 5 * profile.batch_size)
    layers, found = made.problem.layers, alone(made).layers
    assert made.problem.samples == 5
    assert sum(layer.weights for layer in layers) == sum(
        layer.weights or 0 for layer in profile.layers
    )
    assert sum(layer.forward_ns or 0 for layer in layers) == profile.forward_ns
    assert sum(layer.backward_ns or 0 for layer in layers) == profile.backward_ns
    for place, layer in enumerate(layers):
        assert layer.forward_ns is not None
        assert found[place].forward_computation == 5 * layer.forward_ns
        before = found[place - 1].backward_computation if place else Fraction(0)
        own = found[place].weight_update + before
        assert own == 5 * (layer.backward_ns or 0)
    assert sum(layer.cuts > 1 for layer in layers) > len(layers) // 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg19", "resnet50"])
def test_shipped_profiles_are_searched(name: str) -> None:
    (path,) = (one for one in PROFILES if one.stem == name)
    made = profiled(shipped(path), machines(6), 10**6, computation=Fraction(1, 50))
    result = yan.solve(made.problem)
    assert result.status == "optimal"
    assert result.plan is not None
    yan.check(made.problem, result.plan.configuration)
    assert made.assumptions


def test_layers_of_a_small_profile() -> None:
    first, second = neuron_layers(small())
    assert (first.name, first.kind, first.shape) == ("conv", "block", (4, 2, 1))
    assert (first.kernel, first.stride, first.cuts) == (4, 2, 2)
    assert first.forward_ns == 700
    assert first.backward_ns == 1140
    assert (second.kind, second.neurons, second.connections) == ("full", 3, 24)


@given(st.integers(2, 5), st.integers(0, 10**5), st.sampled_from(["mean", "min", "max"]))
@settings(max_examples=20, deadline=None)
def test_the_search_is_brute_force_on_a_small_profile(
    count: int, startup_ns: int, read_model: str
) -> None:
    cluster = machines(count, startup_ns)
    problem = profiled(small(), cluster, 40, read_every=8, read_model=read_model).problem
    best = brute_force(problem, Deadline(None)).plan
    found = yan.solve(problem).plan
    assert best is not None
    assert found is not None
    assert found.ranking[0].epoch == best.ranking[0].epoch
    price = neuron_oracle.price(problem, found.configuration)
    assert price.epoch == found.ranking[0].epoch


@pytest.mark.parametrize("field", ["kind", "output_shape", "connections", "weights", "kernel"])
def test_what_is_missing_is_named(field: str) -> None:
    profile = small()
    without: dict[str, Any] = {field: None}
    layers = (replace(profile.layers[0], **without), *profile.layers[1:])
    with pytest.raises(InvalidInputError) as caught:
        profiled(replace(profile, layers=layers), machines(3), 10)
    assert caught.value.path == f"layers[0].{field}"
    assert "of layer 'conv'" in caught.value.message
    assert "planner profile records it" in caught.value.message


def test_without_a_batch_size_or_layers_there_is_no_problem() -> None:
    with pytest.raises(InvalidInputError) as caught:
        profiled(small(None), machines(3), 10)
    assert caught.value.path == "batch_size"
    profile = small()
    alone = replace(profile, layers=(), graph=profile.dataflow())
    with pytest.raises(InvalidInputError) as caught:
        profiled(alone, machines(3), 10)
    assert caught.value.path == "layers"
    with pytest.raises(NotApplicableError):
        profiled(small(), machines(1), 10)


def branches(joined: bool) -> tuple[tuple[Layer, ...], Graph]:
    """One row here, three and five rows there, and their sum; or the second behind the first."""
    layers = (
        conv("in", 1, 2, 9, 1, block=0),
        conv("a", 2, 2, 9, 3, block=1),
        conv("b", 2, 2, 9, 5, block=1),
        conv("out", 2, 2, 9, 1, block=2),
    )
    links = [(0, 1), (0, 2), (1, 3), (2, 3)] if joined else [(0, 1), (1, 2), (2, 3)]
    return layers, graph_of_layers(layers, links)


@pytest.mark.parametrize(("joined", "kernel"), [(True, 5), (False, 7)])
def test_windows_of_branches_are_joined_and_those_in_a_row_composed(
    joined: bool, kernel: int
) -> None:
    layers, graph = branches(joined)
    profile = Profile("p", layers, Provenance("synthetic", "made up"), 1, graph)
    found = neuron_layers(profile)
    assert [layer.kernel for layer in found] == [1, kernel, 1]
    assert found[1].weights == sum(layer.weights or 0 for layer in layers[1:3])


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=4))
def test_a_window_holds_the_rows_that_reach_a_row(chain: list[tuple[int, int]]) -> None:
    """Against rows followed one by one."""
    rows, layers, reached = 40, {}, [{row} for row in range(40)]
    for place, (kernel, stride) in enumerate(chain):
        after = -(-rows // stride)
        padding = max(0, (after - 1) * stride + kernel - rows)
        top = (padding + 1) // 2
        if not -stride < (after - 1) * stride + kernel - rows <= 2 * (kernel - 1):
            return
        reached = [
            set().union(
                *(
                    reached[row]
                    for row in range(y * stride - top, y * stride - top + kernel)
                    if 0 <= row < rows
                )
            )
            for y in range(after)
        ]
        shape = (1, rows, 1)
        layer = replace(conv("c", 1, 1, 1, 1), input_shape=shape, output_shape=(1, after, 1))
        layers[f"c{place}"] = replace(layer, kernel=(kernel, 1), stride=(stride, 1))
        rows = after
    window = block_window(layers, None, 40)
    assert window is not None
    assert window.rows == rows
    for y, needed in enumerate(reached):
        low, high = y * window.step + window.low, y * window.step + window.high
        assert needed <= set(range(low, high + 1))
        assert max(low, 0) == min(needed) or 0 in needed
    assert window.step == prod(stride for _, stride in chain)


def test_what_mixes_positions_is_not_cut() -> None:
    layers, graph = branches(joined=True)
    mixing = (*layers[:2], replace(layers[2], kind="attention"), layers[3])
    found = neuron_layers(Profile("p", mixing, Provenance("synthetic", "made up"), 1, graph))
    assert [layer.cuts for layer in found] == [9, 1, 9]
