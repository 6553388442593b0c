"""The activation order against the literal greedy rule, and its invariances."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.caramel.activation_order import (
    activation_order,
    activation_steps,
    backward_order,
)
from planner.model.graphs import Graph, Op, Parameter
from tests.caramel.activation_oracle import literal_steps
from tests.caramel.graph_strategies import graphs, tied_durations, training_graphs

any_graphs = st.one_of(
    graphs(),
    graphs(max_ops=30, max_parameters=12),
    graphs(max_ops=30, max_parameters=12, durations=tied_durations),
    training_graphs(),
    training_graphs(durations=tied_durations),
)


@given(any_graphs)
def test_order_steps_and_backward_order_are_those_of_the_literal_rule(graph: Graph) -> None:
    literal, activation = literal_steps(graph), activation_order(graph)
    assert list(activation) == [parameter for parameter, _ in literal]
    steps = activation_steps(graph, activation)
    assert [frozenset(step) for step in steps] == [marked for _, marked in literal]
    backward = graph.pass_order("backward")
    expected = [op for _, marked in literal for op in backward if op in marked]
    expected += [op for op in backward if op not in expected]
    order = backward_order(graph, activation)
    assert list(order) == expected
    place = {op: at for at, op in enumerate(order)}
    assert all(
        place[one] < place[op] for op in order for one in graph.predecessors[op] if one in place
    )


def test_a_wide_graph() -> None:
    """Random joins over everything before."""
    random = Random(3)
    ops = [Op(f"f{i}", random.randint(1, 9), "forward") for i in range(20)]
    for i in range(300):
        needed = {f"b{random.randrange(i)}" for _ in range(min(i, 12))} or {"f0"}
        ops.append(Op(f"b{i}", random.randint(1, 9), "backward", (*needed, f"f{i % 20}")))
    parameters = tuple(Parameter(f"w{i}", 1, (f"b{i * 3}",), ("f0",)) for i in range(100))
    graph = Graph(tuple(ops), parameters)
    assert activation_order(graph) == tuple(picked for picked, _ in literal_steps(graph))


@given(any_graphs, st.data())
def test_the_order_of_ops_in_the_request_does_not_matter(graph: Graph, data: st.DataObject) -> None:
    other = Graph(tuple(data.draw(st.permutations(graph.ops))), graph.parameters)
    assert activation_order(other) == activation_order(graph)


@pytest.mark.parametrize(
    ("ops", "updated_by", "expected"),
    [
        # Once `a` is done, the rest of `c` is cheaper than `b`, though it has cost more.
        (
            {"a": (3, ()), "b": (5, ()), "c": (4, ("a",))},
            {"w": ["c"], "x": ["b"], "y": ["a"]},
            ["y", "w", "x"],
        ),
        # The join costs 1 + 10 + 1 + 1 = 13: as a sum of closures it would cost 23.
        (
            {
                "trunk": (10, ()),
                "left": (1, ("trunk",)),
                "right": (1, ("trunk",)),
                "join": (1, ("left", "right")),
                "apart": (15, ()),
            },
            {"w": ["apart"], "x": ["join"]},
            ["x", "w"],
        ),
        # All updaters count.
        (
            {"a": (3, ()), "b": (3, ()), "c": (5, ())},
            {"w": ["a", "b"], "x": ["c"]},
            ["x", "w"],
        ),
        # `w` comes first in the request, but needs all that `y` needs, and `x`'s op as well.
        (
            {"a": (3, ()), "b": (0, ("a",)), "c": (0, ("b",)), "d": (3, ())},
            {"w": ["c"], "x": ["b"], "y": ["a"], "z": ["d"]},
            ["y", "x", "w", "z"],
        ),
        # Of equals the first one given.
        ({"a": (3, ()), "b": (3, ())}, {"w": ["b"], "x": ["a"]}, ["w", "x"]),
    ],
)
def test_orders_by_hand(
    ops: dict[str, tuple[int, tuple[str, ...]]],
    updated_by: dict[str, list[str]],
    expected: list[str],
) -> None:
    graph = backward_graph(ops, updated_by)
    assert [graph.parameters[index].name for index in activation_order(graph)] == expected


def test_ops_of_no_gradient_come_last() -> None:
    graph = backward_graph({"unused": (0, ()), "a": (3, ())}, {"w": ["a"]})
    order = backward_order(graph, activation_order(graph))
    assert [graph.ops[op].name for op in order] == ["a", "unused"]


def test_a_long_chain_needs_no_recursion() -> None:
    length = 5000
    ops = [Op("f", 1, "forward"), Op("b0", 1, "backward", ("f",))]
    ops += [Op(f"b{i}", 0, "backward", (f"b{i - 1}",)) for i in range(1, length)]
    parameters = [Parameter(f"w{i}", 1, (f"b{i}",), ("f",)) for i in reversed(range(length))]
    graph = Graph(tuple(ops), tuple(parameters))
    assert activation_order(graph) == tuple(reversed(range(length)))


def backward_graph(
    ops: dict[str, tuple[int, tuple[str, ...]]], updated_by: dict[str, list[str]]
) -> Graph:
    """One forward op, then backward ops with their durations and what they need."""
    return Graph(
        (
            Op("forward", 1, "forward"),
            *(
                Op(name, duration, "backward", ("forward", *after))
                for name, (duration, after) in ops.items()
            ),
        ),
        tuple(
            Parameter(name, 1, tuple(updaters), ("forward",))
            for name, updaters in updated_by.items()
        ),
    )
