"""What depends on what: in models that are measured, with updates, and in compiled graphs.

Compiled graphs are held against every order of small ones, tried.
"""

import operator
from collections.abc import Callable
from itertools import count, permutations
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn import functional
from torch.optim import SGD

from planner.model.graphs import Graph
from planner.profiling import measuring
from planner.profiling.fx import dependences, operations
from planner.profiling.measuring import with_updates
from planner.profiling.structure import observe
from tests.caramel.graph_strategies import graphs
from tests.profiling.models import (
    CASES,
    IDS,
    ROWS,
    Model,
    frozen,
    linear,
    measured,
    reads,
    updaters,
)

aten = torch.ops.aten


def result_of(graph: FxGraph, order: tuple[Node, ...], value: Tensor) -> list[Tensor]:
    """Return what a graph computes in an order; None where it reads what is not there yet."""
    values: dict[Node, Any] = dict.fromkeys(graph.find_nodes(op="placeholder"), value.clone())
    torch.manual_seed(0)
    for node in order:
        arguments = torch.fx.node.map_arg(node.args, lambda read: values[read])
        values[node] = node.target(*arguments)  # type: ignore[operator]
    (output,) = graph.find_nodes(op="output")
    read: Any = output.args[0]
    return [values[node].clone() for node in read]


def begun() -> tuple[FxGraph, Node, Callable[..., Node]]:
    """Return a graph with an input, and what adds a call to it."""
    graph = FxGraph()
    return graph, graph.placeholder("x"), lambda call, *given: graph.call_function(call, given)


def mutating() -> FxGraph:
    """Return a graph that changes its input, through a view, between two reads of it."""
    graph, x, call = begun()
    before = call(aten.sum.default, x)
    view = call(aten.view.default, x, [-1])
    changed = call(aten.add_.Tensor, view, 1.0)
    after = call(aten.sum.default, x)
    graph.output((before, changed, after, call(aten.full.default, [2], 1.0)))
    return graph


def drawing() -> FxGraph:
    """Return a graph that draws random numbers twice."""
    graph, x, call = begun()
    first = call(aten.bernoulli.p, x, 0.5)
    kept = call(operator.getitem, call(aten.native_dropout.default, x, 0.5, True), 0)
    graph.output((first, kept, call(aten.sum.default, x)))
    return graph


@pytest.mark.parametrize("make", [mutating, drawing])
def test_admitted_orders_compute_the_same_and_no_others(make: Callable[[], FxGraph]) -> None:
    value = torch.arange(6.0).reshape(2, 3)
    module = GraphModule(nn.Module(), make())
    FakeTensorProp(module).propagate(value)  # notes each node's value, as tracing does
    graph = module.graph
    usual = tuple(operations(graph))
    expected = result_of(graph, usual, value)
    needed = dependences(graph)
    orders = [
        order
        for order in permutations(needed)
        if all(order.index(b) < order.index(node) for node in needed for b in needed[node])
    ]
    assert usual in orders
    assert len(orders) > 1
    for order in permutations(usual):
        try:
            same = all(map(torch.equal, result_of(graph, order, value), expected))
        except KeyError:  # it reads what is not there yet
            same = False
        assert (order in orders) <= same
        if same and order not in orders:  # only readers of a view may lie about what they read
            assert make is mutating


def test_collectives_and_assertions_depend_on_values_and_unknown_calls_keep_their_place() -> None:
    graph, x, call = begun()
    collectives = torch.ops._c10d_functional
    first, second = (call(collectives.all_reduce.default, x, "sum", "0") for _ in range(2))
    waited = call(collectives.wait_tensor.default, first)
    asserted = call(aten._assert_async.default, waited)
    apart = call(aten.neg.default, x)
    unknown = call(print, x)
    last = call(aten.sum.default, x)
    graph.output((second, waited, last))
    needed = dependences(graph)
    assert needed[second] == needed[apart] == ()
    assert needed[waited] == (first,)
    assert needed[asserted] == (waited,)
    assert set(needed[unknown]) == {first, second, waited, asserted, apart}
    assert needed[last] == (unknown,)


# ---
# Models that are measured.


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
        return Model(lambda m, x: functional.relu(x + m.inner(x)).sin().cos(), "inner")

    graph = dataflow(nn.Sequential(linear(), block(), block(), linear()))
    assert [name for name in reads(graph) if ":" in name] == [
        "1:add+relu+sin+...",
        "2:add+relu+sin+...",
    ]
    twice = Model(lambda m, x: m.b(m.a(x) * 2) * 3, "a b")
    assert list(reads(dataflow(twice))) == ["a", "mul", "b", "mul#2", "loss"]
    named_alike = Model(lambda m, x: m.loss(m.add(m.a(x) + x)), "a add loss")
    assert list(reads(dataflow(named_alike))) == ["a", "add#2", "add", "loss", "loss#2"]


@pytest.mark.slow
def test_a_parameter_used_by_a_function_belongs_to_what_uses_it() -> None:
    found = dataflow(Model(lambda m, x: m.b(x * m.a.weight), "a b"), (torch.ones(4, 4),))
    assert updaters(found)["a.weight"] == ("mul",)
    assert reads(found) == {"mul": set(), "b": {"mul"}, "loss": {"b"}}


def test_a_gradient_that_is_complete_early_ends_a_part_of_its_op(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each node of the backward pass, and each gradient, takes a millisecond."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.ones(4, 4)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.first @ self.second

    monkeypatch.setattr(measuring, "clock_for", lambda _: count(0, 10**6).__next__)
    graph = measured(nn.Sequential(linear(), Twice()), repetitions=1).graph
    assert graph is not None
    by_name = {op.name: op for op in graph.ops}
    assert {each.name: each.updated_by for each in graph.parameters if "1." in each.name} == {
        "1.first": ("1/backward",),
        "1.second": ("1:1/backward",),
    }
    assert by_name["1:1/backward"].after == ("loss/backward", "1/forward")
    assert by_name["1/backward"].after == ("1:1/backward",)
    assert by_name["0:1/backward"].after == ("1/backward", "0/forward")
    assert by_name["1:1/backward"].duration_ns == by_name["1/backward"].duration_ns == 2 * 10**6


MS = 10**6


@pytest.mark.parametrize(
    ("lasts", "reached", "expected"),
    [
        (8 * MS, [4, 8], [4]),
        (8 * MS, [4, 7], [4]),
        (8 * MS, [4, 5, 8], [5]),  # the second one comes soon after the first
        (8 * MS, [1, 2, 3, 4, 8], [4]),
        (8 * MS, [2, 4, 6, 8], [2, 4, 6]),
        (8 * MS, [7, 8], []),
        (8 * MS, [8, 8], []),
        (8 * MS, [], []),
        (1.9 * MS, [0.95, 1.9], []),  # shorter than a transfer
    ],
)
def test_a_part_takes_a_quarter_of_its_op_and_a_millisecond(
    lasts: float, reached: list[float], expected: list[int]
) -> None:
    rows = [(round(end * MS), str(number)) for number, end in enumerate(reached)]
    parts = list(measuring._parts(round(lasts), rows))
    assert [end for end, _ in parts] == [end * MS for end in expected]
    early = [name for end, name in rows if parts and end <= parts[-1][0]]
    assert [name for _, names in parts for name in names] == early


def test_what_autograd_does_not_see_stays_in_its_place() -> None:
    model = Model(
        lambda m, x: m.head(m.drop(y := m.stem(x)) + m.a(y)), "stem a head", drop=nn.Dropout()
    )
    graph = dataflow(model.eval())
    assert reads(graph)["drop"] == {"stem"}
    assert reads(graph)["a"] == {"stem", "drop"}
    assert "drop" not in reads(graph, "backward")
    assert reads(graph, "backward")["stem"] == {"a", "add"}


def test_what_reads_nothing_recorded_follows_the_op_before() -> None:
    modules = {"embed": nn.Embedding(9, 4), "again": nn.Embedding(9, 4)}
    model = Model(lambda m, x: m.decode(m.again(m.embed(x).argmax(-1))), "decode", **modules)
    graph = dataflow(model, IDS)
    assert reads(graph)["again"] == {"embed"}
    assert list(reads(graph, "backward")) == ["loss", "decode", "again"]
    assert "embed.weight" not in updaters(graph)


def test_a_gradient_of_the_input_alone_makes_no_graph_and_its_history_no_op() -> None:
    leaf = torch.ones(2, 4, requires_grad=True)
    profile = measured(frozen(linear()), (leaf,))
    assert profile.graph is None
    assert profile.backward_ns > 0
    grown = leaf * 2
    model_graph = observe(Model(lambda m, x: m.a(x) + m.b(x), "a b"), (grown,))
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

    model = Model(compute, " ".join(names))
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


@given(graphs(), st.integers(0, 10**6))
def test_updates_come_before_what_reads_them(graph: Graph, step_ns: int) -> None:
    updated, end = with_updates(graph, step_ns), ":update/forward"
    assert [op for op in updated.ops if not op.name.endswith(end)] == [
        op if op.phase == "backward" else updated.ops[updated.position[op.name]] for op in graph.ops
    ]
    before, after = (sum(op.duration_ns for op in one.ops) for one in (graph, updated))
    assert after - before == step_ns
    old, order = (
        [one.ops[index].name for index in one.pass_order("forward")] for one in (graph, updated)
    )
    assert [name for name in order if not name.endswith(end)] == old
    for parameter in updated.parameters:
        first, *readers = parameter.read_by
        assert first.endswith(end)
        assert all(order.index(first) < order.index(reader) for reader in readers)


def test_with_an_optimiser_passes_are_those_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are copied, as before a transfer, and updates find nothing in a cache."""
    model, done, copies = nn.Linear(4, 2), list[str](), list[Tensor]()
    model.register_forward_hook(lambda *_: done.append("pass"))
    multiplied = torch.mul

    def noticed(values: Tensor, factor: float, *, out: Tensor) -> Tensor:
        copies.append(values)
        return multiplied(values, factor, out=out)

    class Noticed(SGD):
        def step(self, closure: None = None) -> None:  # type: ignore[override]
            done.append("update")
            super().step(closure)

    monkeypatch.setattr(torch, "mul", noticed)
    measured(model, repetitions=2)
    assert copies == []
    done.clear()
    measured(model, repetitions=2, optimizer=lambda parameters: Noticed(parameters, lr=1.0))
    assert len(copies) == 2 * 2 * 2  # gradients, of passes with hooks and without
    assert done[-7:] == ["pass", "pass", "update", "update", "pass", "pass", "update"]
    done.clear()
    copies.clear()
    measured(model, repetitions=2)
    assert copies == []


def test_a_profile_has_the_updates_and_the_model_has_not() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    graph = measured(model, optimizer=lambda parameters: SGD(parameters, lr=1.0)).graph
    assert graph is not None
    names = [op.name for op in graph.ops if op.phase == "forward"]
    assert [name for name in names if "update" in name] == ["0:update/forward", "1:update/forward"]
    assert names.index("0:update/forward") < names.index("0/forward")
    assert all(map(torch.equal, weights, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())
