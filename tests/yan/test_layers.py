"""Layers: how they are cut and connected, which ones are accepted, and what is said of others."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.yan.layers import NeuronLayer, fields
from planner.model.errors import InvalidInputError
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


def grow(
    name: str,
    before: NeuronLayer | int,
    channels: int,
    sides: tuple[int, int],
    kernel: int,
    **also: int,
) -> NeuronLayer:
    """A convolution on the channels of `before`, with a bias, connections into padding counted."""
    if isinstance(before, NeuronLayer):
        assert before.shape is not None
        before = before.shape[0]
    inputs = before // also.pop("groups", 1)
    neurons = channels * sides[0] * sides[1]
    weights = channels * inputs * kernel**2 + channels
    shape = (channels, *sides)
    return NeuronLayer(
        name,
        "conv",
        neurons,
        neurons * inputs * kernel**2,
        weights,
        shape,
        kernel,
        also.get("stride", 1),
        also.get("pool", 1),
    )


def full(name: str, before: NeuronLayer, neurons: int) -> NeuronLayer:
    return NeuronLayer(
        name, "full", neurons, neurons * before.outputs, neurons * (before.outputs + 1)
    )


def alexnet() -> list[NeuronLayer]:
    one = grow("conv1", 3, 96, (55, 55), 11, stride=4, pool=2)
    two = grow("conv2", one, 256, (27, 27), 5, groups=2, pool=2)
    three = grow("conv3", two, 384, (13, 13), 3)
    four = grow("conv4", three, 384, (13, 13), 3, groups=2)
    five = grow("conv5", four, 256, (13, 13), 3, groups=2, pool=2)
    six = full("fc6", five, 4096)
    seven = full("fc7", six, 4096)
    return [one, two, three, four, five, six, seven, full("fc8", seven, 1000)]


def test_alexnet_is_accepted_and_has_known_numbers() -> None:
    layers = alexnet()
    for layer, following in pairwise(layers):
        found = fields(layer, following)
        assert found.into(layer, following, layer.cuts) == following.connections
        assert len(found.first) == (following.rows if following.kind == "conv" else 0)
    assert [layer.outputs for layer in layers[:5]] == [69984, 43264, 64896, 64896, 9216]
    assert [layer.input_channels for layer in layers[:5]] == [3, 48, 256, 192, 192]
    assert layers[0].held(2) == [0, 28, 55]  # 14 windows, then 13 and a row that is dropped
    assert layers[5].weights_in(0, 1) == 9217


def test_padding_by_hand() -> None:
    """Five rows from five: the first of kernel 3 misses one row above, the last one below."""
    before = grow("a", 1, 1, (5, 1), 3)
    found = fields(before, grow("b", before, 1, (5, 1), 3))
    assert found.first == [0, 0, 1, 2, 3]
    assert found.last == [2, 3, 4, 5, 5]
    assert found.seen == [0, 2, 5, 8, 11, 13]
    found = fields(before, grow("b", before, 1, (3, 1), 2, stride=2))  # one row of padding, above
    assert list(zip(found.first, found.last, strict=True)) == [(0, 1), (1, 3), (3, 5)]
    found = fields(before, grow("b", before, 1, (2, 1), 2, stride=2))  # the last row is not read
    assert list(zip(found.first, found.last, strict=True)) == [(0, 2), (2, 4)]
    assert found.seen == [0, 1, 2, 3, 4, 4]


def test_weights_and_connections_say_how_many_input_channels() -> None:
    def inputs(weights: int, connections: int) -> int:
        return NeuronLayer("c", "conv", 8, connections, weights, (2, 2, 2), 1).input_channels

    assert inputs(6, 24) == 3
    assert inputs(6, 16) == 2  # and a bias a channel
    assert inputs(4, 8) == 1


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
        ("neurons", "expected an integer >= 1, got 4.0", FULL, {"neurons": 4.0}),
        ("neurons", "expected an integer >= 1, got true", FULL, {"neurons": True}),
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
    with pytest.raises(InvalidInputError) as caught:
        NeuronLayer(**{**given, **changes})
    assert caught.value.path == path
    assert message in caught.value.message


def test_a_layer_as_large_as_they_come_is_cut_at_once() -> None:
    layer = NeuronLayer("f", "full", 2**53, 2**53, 2**53)
    assert layer.held(7)[-1] == 2**53
    following = NeuronLayer("g", "full", 1, 2**53, 2**53)
    assert fields(layer, following).into(layer, following, 2**53) == 2**53
    tall = NeuronLayer("c", "conv", 2**16, 2**16, 1, (1, 2**16, 1), 1)
    assert fields(tall, tall).seen[-1] == 2**16


@pytest.mark.parametrize(
    ("path", "message", "before", "following"),
    [
        ("kind", "expected 'full' after the fully connected layer 'f'", FULL, CONV),
        (
            "connections",
            "expected neurons x inputs (4 x 4 from 'f' = 16), got 12",
            FULL,
            FULL,
        ),
        ("connections", "(4 x 60 from 'c' = 240), got 12", CONV, FULL),
        (
            "weights",
            "for 3 input channels, which does not divide the 2 channels of 'c'",
            CONV,
            CONV,
        ),
        (
            "shape[2]",
            "no padding makes 2 columns of the 5 of 'c' with kernel 3 and stride 1",
            CONV,
            {"shape": (1, 4, 2)},
        ),
        (
            "shape[1]",
            "no padding makes 6 rows of the 3 of 'c' with kernel 3 and stride 1",
            {**CONV, "pool": 2},
            {"shape": (1, 6, 2)},
        ),
    ],
)
def test_layers_that_do_not_fit(
    path: str, message: str, before: dict[str, Any], following: dict[str, Any]
) -> None:
    if "kind" not in following:
        _, rows, columns = following["shape"]
        neurons = rows * columns
        given = {"neurons": neurons, "connections": 18 * neurons, "weights": 18, **following}
        following = {**CONV, "name": "d", **given}
    with pytest.raises(InvalidInputError) as caught:
        fields(NeuronLayer(**before), NeuronLayer(**following))
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize(("rows", "fits"), [(3, False), (4, True), (8, True), (9, False)])
def test_how_much_padding_is_possible(rows: int, fits: bool) -> None:
    """Six rows and kernel 3: none or up to two on each side."""
    before = grow("a", 1, 1, (6, 1), 1)
    following = grow("b", before, 1, (rows, 1), 3)
    if fits:
        fields(before, following)
        return
    with pytest.raises(InvalidInputError, match=f"no padding makes {rows} rows"):
        fields(before, following)
