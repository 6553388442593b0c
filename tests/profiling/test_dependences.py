"""What may run before what in a compiled graph: against every order of small graphs, tried."""

import operator
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from planner.profiling.fx import dependences, operations

aten = torch.ops.aten


def result_of(graph: Graph, order: tuple[Node, ...], value: Tensor) -> list[Tensor]:
    """Return what a graph computes in an order; None where it reads what is not there yet."""
    values: dict[Node, Any] = dict.fromkeys(graph.find_nodes(op="placeholder"), value.clone())
    torch.manual_seed(0)
    for node in order:
        arguments = torch.fx.node.map_arg(node.args, lambda read: values[read])
        values[node] = node.target(*arguments)  # type: ignore[operator]
    (output,) = graph.find_nodes(op="output")
    read: Any = output.args[0]
    return [values[node].clone() for node in read]


def begun() -> tuple[Graph, Node, Callable[..., Node]]:
    """Return a graph with an input, and what adds a call to it."""
    graph = Graph()
    return graph, graph.placeholder("x"), lambda call, *given: graph.call_function(call, given)


def mutating() -> Graph:
    """Return a graph that changes its input, through a view, between two reads of it."""
    graph, x, call = begun()
    before = call(aten.sum.default, x)
    view = call(aten.view.default, x, [-1])
    changed = call(aten.add_.Tensor, view, 1.0)
    after = call(aten.sum.default, x)
    graph.output((before, changed, after, call(aten.full.default, [2], 1.0)))
    return graph


def drawing() -> Graph:
    """Return a graph that draws random numbers twice."""
    graph, x, call = begun()
    first = call(aten.bernoulli.p, x, 0.5)
    kept = call(operator.getitem, call(aten.native_dropout.default, x, 0.5, True), 0)
    graph.output((first, kept, call(aten.sum.default, x)))
    return graph


@pytest.mark.parametrize("make", [mutating, drawing])
def test_orders_that_are_admitted_compute_the_same_and_no_others(make: Callable[[], Graph]) -> None:
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
