"""Dataflow graphs of measured models."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from planner.model.graphs import Graph
from planner.profiling.structure import observe
from tests.profiling.models import (
    CASES,
    IDS,
    LINEAR,
    ROWS,
    Model,
    frozen_front,
    linear,
    measured,
    reads,
    updaters,
)


def dataflow(model: nn.Module, inputs: tuple[Any, ...] = ROWS) -> Graph:
    graph = measured(model, inputs, repetitions=1).graph
    assert graph is not None
    return graph


def test_times_of_the_ops_sum_to_those_of_the_layers() -> None:
    profile = measured(CASES["residual"].make(), repetitions=1)
    assert profile.graph is not None
    ops = {op.name: op.duration_ns for op in profile.graph.ops}
    layer = {layer.name: layer for layer in profile.layers}
    assert ops["b/forward"] + ops["add/forward"] == layer["b"].forward_ns
    assert ops["b/backward"] + ops["add/backward"] == layer["b"].backward_ns
    assert ops["loss/forward"] == 0
    assert ops["head/backward"] + ops["loss/backward"] == layer["head"].backward_ns


def test_an_op_between_layers_is_named_after_its_module_and_what_it_does() -> None:
    def block() -> Model:
        return Model(lambda m, x: functional.relu(x + m.inner(x)).sin().cos(), inner=linear())

    graph = dataflow(nn.Sequential(linear(), block(), block(), linear()))
    assert [name for name in reads(graph) if ":" in name] == [
        "1:add+relu+sin+...",
        "2:add+relu+sin+...",
    ]
    twice = Model(lambda m, x: m.b(m.a(x) * 2) * 3, a=linear(), b=linear())
    assert list(reads(dataflow(twice))) == ["a", "mul", "b", "mul#2", "loss"]


def test_layers_keep_their_names() -> None:
    model = Model(lambda m, x: m.loss(m.add(m.a(x) + x)), a=linear(), add=linear(), loss=linear())
    assert list(reads(dataflow(model))) == ["a", "add#2", "add", "loss", "loss#2"]


@pytest.mark.slow
def test_a_parameter_used_by_a_function_belongs_to_what_uses_it() -> None:
    early = Model(lambda m, x: m.b(x * m.a.weight), a=linear(), b=linear())
    found = dataflow(early, (torch.ones(4, 4),))
    assert updaters(found)["a.weight"] == ("mul",)
    assert reads(found) == {"mul": set(), "b": {"mul"}, "loss": {"b"}}


def test_what_autograd_does_not_see_stays_in_its_place() -> None:
    def compute(m: Any, x: Tensor) -> Tensor:
        return m.head(m.drop(y := m.stem(x)) + m.a(y))  # type: ignore[no-any-return]

    model = Model(compute, stem=linear(), drop=nn.Dropout(), a=linear(), head=linear()).eval()
    graph = dataflow(model)
    assert reads(graph)["drop"] == {"stem"}
    assert reads(graph)["a"] == {"stem", "drop"}
    assert "drop" not in reads(graph, "backward")
    assert reads(graph, "backward")["stem"] == {"a", "add"}


def test_what_reads_nothing_recorded_follows_the_op_before() -> None:
    def compute(m: Any, ids: Tensor) -> Tensor:
        return m.decode(m.again(m.embed(ids).argmax(-1)))  # type: ignore[no-any-return]

    model = Model(compute, embed=nn.Embedding(9, 4), again=nn.Embedding(9, 4), decode=linear())
    graph = dataflow(model, IDS)
    assert reads(graph)["again"] == {"embed"}
    assert list(reads(graph, "backward")) == ["loss", "decode", "again"]
    assert "embed.weight" not in updaters(graph)


def test_a_gradient_of_the_input_alone_makes_no_graph() -> None:
    frozen = linear().requires_grad_(requires_grad=False)
    profile = measured(frozen, (torch.ones(2, 4, requires_grad=True),))
    assert profile.graph is None
    assert profile.backward_ns > 0


def test_an_input_with_a_history_of_its_own() -> None:
    grown = torch.ones(2, 4, requires_grad=True) * 2
    model = Model(lambda m, x: m.a(x) + m.b(x), a=linear(), b=linear())
    model_graph = observe(model, (grown,))
    assert [op.reads for op in model_graph.ops] == [(), (0,), (0, 1), (2,)]
    assert model_graph.node_ops[0] == 0


@st.composite
def _sources(draw: st.DrawFn) -> list[list[int]]:
    """Draw what each layer reads: outputs of earlier layers, the first the input (number 0)."""
    return [
        sorted(draw(st.sets(st.integers(min(layer, 1), layer), min_size=1, max_size=3)))
        for layer in range(draw(st.integers(1, 7)))
    ]


@settings(max_examples=60, deadline=None)
@given(_sources())
def test_any_dataflow_is_found_and_cut_where_one_value_is_alive(sources: list[list[int]]) -> None:
    """Values flow as drawn; sums of several values are ops."""
    size = len(sources)
    read = {source for chosen in sources for source in chosen}
    unread = [value for value in range(1, size + 1) if value not in read]
    names = [f"l{layer}" for layer in range(size)]

    def summed(values: list[Tensor], chosen: list[int]) -> Tensor:
        return sum((values[i] for i in chosen[1:]), start=values[chosen[0]])

    def compute(m: Any, x: Tensor) -> Tensor:
        values = [x]
        for name, chosen in zip(names, sources, strict=True):
            values.append(getattr(m, name)(summed(values, chosen)))
        return summed(values, unread)

    model = Model(compute, **{name: linear() for name in names})
    graph = dataflow(model)
    forward, backward = reads(graph), reads(graph, "backward")
    sums = iter([name for name in forward if name.startswith("add")])
    for name, chosen in zip([*names, "loss"], [*sources, unread], strict=True):
        needed = {names[i - 1] for i in chosen if i}
        if len(chosen) > 1:
            join = next(sums)
            assert forward[join] == needed
            needed = {join}
        assert forward[name] == needed
        assert name in backward
    for name, needed in backward.items():
        assert needed == {other for other, used in forward.items() if name in used}
    assert updaters(graph) == {
        f"{name}.{what}": (name,) for name in names for what in ("weight", "bias")
    }

    def last_reader(value: int) -> int:
        readers = [layer + 1 for layer, chosen in enumerate(sources) if value in chosen]
        return size + 1 if value in unread else max(readers, default=0)

    expected = [0]
    for value in range(1, size):
        # Behind the layer only its output is read, or behind the sum that the next layer reads.
        behind_layer = all(last_reader(i) <= value for i in range(value))
        behind_sum = len(sources[value]) > 1 and all(
            last_reader(i) <= value + 1 for i in range(value + 1)
        )
        expected.append(expected[-1] + (behind_layer or behind_sum))
    assert list(observe(model, ROWS).blocks) == expected


def test_parameters_sum_to_the_gradients_sent() -> None:
    profile = measured(frozen_front())
    assert profile.graph is not None
    sizes = sum(parameter.size_bytes for parameter in profile.graph.parameters)
    assert sizes == sum(layer.pushed_bytes for layer in profile.layers) == LINEAR
