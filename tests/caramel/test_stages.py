"""Caramel's stages: activation order, control edges, threshold, batches, packing, depth."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError
from planner.families.caramel import paper
from planner.families.caramel.activation_order import (
    activation_order,
    activation_steps,
    backward_order,
)
from planner.families.caramel.windows import ready_times
from planner.model.costs import DepthCost, TransferCost
from planner.model.graphs import Graph, Op, Parameter
from planner.testing import costs
from tests.caramel.exact_oracles import unrounded
from tests.caramel.graph_strategies import graphs, tied_durations

large = graphs(max_ops=30, max_parameters=12)
tied = graphs(max_ops=30, max_parameters=12, durations=tied_durations)
any_graphs = graphs() | large | tied

Edges = Sequence[tuple[int, int]]


def closure(graph: Graph, parameter: int, marked: set[int]) -> frozenset[int]:
    """Return the ops that the parameter's gradient needs and that are not marked."""
    found: set[int] = set()
    stack = list(graph.updaters[parameter])
    while stack:
        op = stack.pop()
        if op not in found and op not in marked:
            found.add(op)
            stack += graph.predecessors[op]
    return frozenset(found)


def literal_steps(graph: Graph) -> list[tuple[int, frozenset[int]]]:
    """Return the picks of the paper's greedy rule, and the ops that each of them marks.

    Every closure is computed anew at each pick.
    """
    left, marked = list(range(len(graph.parameters))), set[int]()
    steps = []
    while left:
        closures = {j: closure(graph, j, marked) for j in left}
        costs = {j: sum(graph.ops[op].duration_ns for op in closures[j]) for j in left}
        cheapest = [j for j in left if costs[j] == min(costs.values())]
        sets = [closures[j] for j in cheapest]
        best = next(j for j in cheapest if not any(other < closures[j] for other in sets))
        steps.append((best, closures[best]))
        marked |= closures[best]
        left.remove(best)
    return steps


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


def test_a_long_chain_needs_no_recursion() -> None:
    length = 5000
    ops = [Op("f", 1, "forward"), Op("b0", 1, "backward", ("f",))]
    ops += [Op(f"b{i}", 0, "backward", (f"b{i - 1}",)) for i in range(1, length)]
    parameters = [Parameter(f"w{i}", 1, (f"b{i}",), ("f",)) for i in reversed(range(length))]
    graph = Graph(tuple(ops), tuple(parameters))
    assert activation_order(graph) == tuple(reversed(range(length)))


@pytest.mark.parametrize("given_order", [False, True])
@given(graph=any_graphs, data=st.data())
def test_edges_are_as_few_as_keep_the_times_of_their_order(
    given_order: bool, graph: Graph, data: st.DataObject
) -> None:
    """Of the activation order, or of any: no cycle, none too many, and all is ready as by it."""
    activation = activation_order(graph)
    order: Sequence[int] = backward_order(graph, activation)
    edges = paper.control_edges(graph, activation)
    if given_order:
        order = any_order(graph, (), data)
        edges = paper.edges_of_order(graph, order)
    place = {op: at for at, op in enumerate(order)}
    assert len(set(edges)) == len(edges) <= 2 * len(graph.ops)
    assert all(place[before] < place[after] for before, after in edges)
    for edge in edges:
        assert not reaches(graph, [other for other in edges if other != edge], *edge)
    assert ready_times(graph, any_order(graph, edges, data)) == ready_times(graph, order)
    if given_order:
        return
    # Each op runs before all ops of later tags, or of no gradient, dependencies or not.
    for parameter in activation:
        stop = max(place[op] for op in graph.updaters[parameter]) + 1
        assert all(
            reaches(graph, edges, before, after)
            for before in order[:stop]
            for after in order[stop:]
        )


def any_order(graph: Graph, edges: Edges, data: st.DataObject) -> list[int]:
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


def reaches(graph: Graph, edges: Edges, first: int, second: int) -> bool:
    found: set[int] = set()
    stack = [first]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack += graph.successors[op]
            stack += [after for before, after in edges if before == op]
    return second in found


@settings(max_examples=300)
@given(costs())
def test_the_threshold_is_the_least_size_that_passes(cost: TransferCost) -> None:
    threshold = paper.batching_threshold(cost)
    for size in range(1, 400):
        if unrounded(cost, 2 * size) > Fraction(8, 5) * unrounded(cost, size):
            assert threshold == size
            return
    assert threshold is None or threshold >= 400


def test_the_threshold_of_an_affine_cost_has_a_closed_form() -> None:
    # x > 1.5·α/β: at 1.5·50,000/0.8 = 93,750 bytes the ratio is 0.8 exactly.
    assert paper.batching_threshold(AffineCost(50_000, Fraction(4, 5))) == 93_751
    assert paper.batching_threshold(AffineCost(50_000, Fraction(0))) is None
    assert paper.batching_threshold(AffineCost(0, Fraction(1))) == 1
    deep = DepthCost(((1, AffineCost(50_000, Fraction(4, 5))), (8, AffineCost(10**6, Fraction(1)))))
    assert paper.batching_threshold(deep) == 93_751
    with pytest.raises(InvalidInputError, match="doubling"):
        paper.batching_threshold(AffineCost(1, Fraction(1)), Fraction(1))


def test_a_batch_waits_while_the_network_is_busy() -> None:
    def batches(sizes: list[int], heads: list[int], startup: int) -> list[list[int]]:
        return paper.small_batches(range(len(sizes)), sizes, heads, lambda size: startup + size, 10)

    # The first transfer occupies the network from 10 to 30: 20 and 25 join; before 40 it is idle.
    assert batches([15, 1, 1, 1], [10, 20, 25, 40], 5) == [[0], [1, 2], [3]]
    assert batches([1, 1], [10, 10], 0) == [[0, 1]]  # ready at the same moment: one update
    assert batches([9, 9, 9], [0, 0, 0], 0) == [[0, 1], [2]]  # full, a batch leaves at once


def test_packing_by_hand() -> None:
    # Backward pass 0 … 100. The largest fits behind its head, the next one only in the forward
    # pass, the last one in the gap before the first.
    items = [paper.Item(60, 50, 30, 3), paper.Item(70, 40, 35, 5), paper.Item(0, 50, 55, 4)]
    assert paper.pack(items, 100)[0] == [2, 0, 1]
    # Nothing fits. The first would take 40 behind the backward pass, 15 before the forward pass;
    # the second takes 5 behind.
    assert paper.pack([paper.Item(50, 35, 50, 9), paper.Item(20, 5, 45, 8)], 60)[0] == [1, 0]
    # Equally long: behind the backward pass, and then the second one behind the first.
    assert paper.pack([paper.Item(50, 10, 50, 9), paper.Item(55, 0, 10, 8)], 60)[0] == [0, 1]
    assert paper.pack([paper.Item(50, 10, 50, 9), paper.Item(0, 100, 30, 8)], 60)[0] == [1, 0]
    # Both in the forward pass, each as late as it may be.
    assert paper.pack([paper.Item(100, 20, 10, 9), paper.Item(100, 50, 10, 8)], 100)[0] == [0, 1]


@given(st.integers(1, 10**6), st.none() | st.integers(0, 10**5))
def test_depth(size: int, threshold: int | None) -> None:
    depths = range(1, paper.MAX_DEPTH + 1)
    depth = paper.adaptive_depth(size, threshold, depths)
    small = threshold is None or size <= threshold
    assert depth == 1 if small else 1 <= depth <= paper.MAX_DEPTH
    assert paper.adaptive_depth(size + 1, threshold, depths) >= depth
    assert paper.adaptive_depth(size, threshold, ()) == 1  # no cost says that chunks pay
    assume(threshold)
    assert paper.adaptive_depth(size, threshold, [1, 2, 8]) in (1, 2, 8)
    assert paper.adaptive_depth(8 * (threshold or 1) + 1, threshold, depths) == paper.MAX_DEPTH
