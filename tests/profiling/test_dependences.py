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


def valued(graph: Graph, *inputs: Tensor) -> Graph:
    """Note each node's value, as tracing does."""
    module = GraphModule(nn.Module(), graph)
    FakeTensorProp(module).propagate(*inputs)
    return module.graph


def admitted(graph: Graph) -> list[tuple[Node, ...]]:
    """Return the orders that the dependences admit."""
    needed = dependences(graph)
    return [
        order
        for order in permutations(needed)
        if all(order.index(b) < order.index(node) for node in needed for b in needed[node])
    ]


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


def mutating() -> Graph:
    """Return a graph that changes its input, through a view, between two reads of it."""
    graph = Graph()
    x = graph.placeholder("x")
    before = graph.call_function(aten.sum.default, (x,))
    view = graph.call_function(aten.view.default, (x, [-1]))
    changed = graph.call_function(aten.add_.Tensor, (view, 1.0))
    after = graph.call_function(aten.sum.default, (x,))
    apart = graph.call_function(aten.full.default, ([2], 1.0))
    graph.output((before, changed, after, apart))
    return graph


def drawing() -> Graph:
    """Return a graph that draws random numbers twice."""
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(aten.bernoulli.p, (x, 0.5))
    second = graph.call_function(aten.native_dropout.default, (x, 0.5, True))
    kept = graph.call_function(operator.getitem, (second, 0))
    apart = graph.call_function(aten.sum.default, (x,))
    graph.output((first, kept, apart))
    return graph


@pytest.mark.parametrize("make", [mutating, drawing])
def test_orders_that_are_admitted_compute_the_same_and_no_others(make: Callable[[], Graph]) -> None:
    value = torch.arange(6.0).reshape(2, 3)
    graph = valued(make(), value)
    usual = tuple(operations(graph))
    expected = result_of(graph, usual, value)
    orders = admitted(graph)
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


def test_collectives_depend_on_values_and_unknown_calls_keep_their_place() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.ops._c10d_functional.all_reduce.default, (x, "sum", "0"))
    second = graph.call_function(torch.ops._c10d_functional.all_reduce.default, (x, "sum", "0"))
    waited = graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (first,))
    unknown = graph.call_function(print, (x,))
    last = graph.call_function(aten.sum.default, (x,))
    graph.output((second, waited, last))
    needed = dependences(graph)
    assert needed[second] == ()
    assert needed[waited] == (first,)
    assert set(needed[unknown]) == {first, second, waited}
    assert needed[last] == (unknown,)


def test_an_assertion_waits_for_what_it_reads_only() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(aten.sum.default, (x,))
    asserted = graph.call_function(aten._assert_async.default, (first,))
    last = graph.call_function(aten.neg.default, (x,))
    graph.output((first, last))
    needed = dependences(graph)
    assert needed[asserted] == (first,)
    assert needed[last] == ()
