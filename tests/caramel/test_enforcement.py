"""Control edges: what every order that they admit has in common."""

from collections.abc import Sequence

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


@pytest.mark.parametrize("given_order", [False, True])
@given(graph=any_graphs, data=st.data())
def test_edges_are_as_few_as_keep_the_times_of_their_order(
    given_order: bool, graph: Graph, data: st.DataObject
) -> None:
    """Of the activation order, or of any: no cycle, none too many, and all is ready as by it."""
    activation = activation_order(graph)
    order: Sequence[int] = backward_order(graph, activation)
    edges = control_edges(graph, activation)
    if given_order:
        order = any_order(graph, (), data)
        edges = edges_of_order(graph, order)
    place = {op: at for at, op in enumerate(order)}
    assert len(set(edges)) == len(edges) <= 2 * len(graph.ops)
    assert all(place[before] < place[after] for before, after in edges)
    for edge in edges:
        assert not reaches(graph, [other for other in edges if other != edge], *edge)
    assert ready_times(graph, any_order(graph, edges, data)) == ready_times(graph, order)


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
