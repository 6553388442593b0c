"""Control edges: what every order that they admit has in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.caramel.activation_order import activation_order, backward_order
from planner.families.caramel.paper import control_edges, edges_of_order
from planner.families.caramel.windows import ready_times
from planner.model.graphs import Graph, Op, Parameter
from tests.caramel.graph_strategies import graphs, tied_durations, training_graphs

any_graphs = st.one_of(
    graphs(),
    graphs(max_ops=24, max_parameters=8),
    graphs(max_ops=24, max_parameters=8, durations=tied_durations),
    training_graphs(),
)


@given(any_graphs)
def test_edges_join_backward_ops_without_cycles(graph: Graph) -> None:
    edges = control_edges(graph, activation_order(graph))
    assert len(set(edges)) == len(edges)
    assert all(graph.ops[op].phase == "backward" for edge in edges for op in edge)
    place = {op: at for at, op in enumerate(backward_order(graph, activation_order(graph)))}
    assert all(place[before] < place[after] for before, after in edges)


@given(any_graphs, st.data())
def test_every_order_is_ready_at_the_same_times(graph: Graph, data: st.DataObject) -> None:
    activation = activation_order(graph)
    order = any_order(graph, control_edges(graph, activation), data)
    assert ready_times(graph, order) == ready_times(graph, backward_order(graph, activation))


@given(any_graphs)
def test_no_edge_can_be_left_out(graph: Graph) -> None:
    """Each edge orders two ops that nothing else orders."""
    edges = control_edges(graph, activation_order(graph))
    for edge in edges:
        rest = [other for other in edges if other != edge]
        assert not reaches(graph, rest, *edge)


@pytest.mark.slow
@given(any_graphs)
def test_tags_are_ordered_completely(graph: Graph) -> None:
    """Each op runs before all ops of later tags, data dependencies or not."""
    activation = activation_order(graph)
    edges = control_edges(graph, activation)
    order = backward_order(graph, activation)
    stops = sorted(
        {max(order.index(op) for op in graph.updaters[parameter]) + 1 for parameter in activation}
    )
    for stop in stops:
        assert all(
            reaches(graph, edges, before, after)
            for before in order[:stop]
            for after in order[stop:]
        )


def test_ops_of_no_gradient_wait() -> None:
    graph = Graph(
        (
            Op("f", 1, "forward"),
            Op("unused", 1, "backward", ("f",)),
            Op("a", 5, "backward", ("f",)),
            Op("b", 7, "backward", ("f",)),
        ),
        (Parameter("w", 1, ("b",), ("f",)), Parameter("x", 1, ("a",), ("f",))),
    )
    assert control_edges(graph, activation_order(graph)) == ((2, 3), (3, 1))


@given(any_graphs, st.data())
def test_edges_of_a_given_order(graph: Graph, data: st.DataObject) -> None:
    """The order keeps them, none can be left out, and gradients are ready when it has them."""
    given_order = any_order(graph, (), data)
    edges = edges_of_order(graph, given_order)
    place = {op: at for at, op in enumerate(given_order)}
    assert all(place[before] < place[after] for before, after in edges)
    for edge in edges:
        assert not reaches(graph, [other for other in edges if other != edge], *edge)
    other = any_order(graph, edges, data)
    assert ready_times(graph, other) == ready_times(graph, given_order)


@given(any_graphs)
def test_there_are_at_most_two_edges_an_op(graph: Graph) -> None:
    assert len(control_edges(graph, activation_order(graph))) <= 2 * len(graph.ops)


def any_order(graph: Graph, edges: tuple[tuple[int, int], ...], data: st.DataObject) -> list[int]:
    """Draw a topological order of the backward ops under data dependencies and control edges."""
    left = list(graph.pass_order("backward"))
    before = {op: {one for one in graph.predecessors[op] if one in left} for op in left}
    for first, second in edges:
        before[second].add(first)
    order: list[int] = []
    while left:
        op = data.draw(st.sampled_from([op for op in left if before[op].issubset(order)]))
        order.append(op)
        left.remove(op)
    return order


def reaches(
    graph: Graph,
    edges: list[tuple[int, int]] | tuple[tuple[int, int], ...],
    first: int,
    second: int,
) -> bool:
    found: set[int] = set()
    stack = [first]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack += graph.successors[op]
            stack += [after for before, after in edges if before == op]
    return second in found
