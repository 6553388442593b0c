"""What a dataflow graph may be."""

from itertools import pairwise

import pytest
from hypothesis import given

from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from tests.caramel.graph_strategies import graphs

F1, B1 = Op("f1", 1, "forward"), Op("b1", 1, "backward", ("f1",))
W1 = Parameter("w1", 4, ("b1",), ("f1",))


@given(graphs())
def test_the_topological_order_is_one_and_stable(graph: Graph) -> None:
    order = graph.topological
    place = {index: position for position, index in enumerate(order)}
    assert sorted(order) == list(range(len(graph.ops)))
    for index, needed in enumerate(graph.predecessors):
        assert all(place[one] < place[index] for one in needed)
    for one, two in pairwise(order):
        # The next op was not ready, or is behind in the request.
        assert one < two or one in graph.predecessors[two] or _became_ready_late(graph, one, two)
    both = graph.pass_order("backward"), graph.pass_order("forward")
    assert sorted([*both[0], *both[1]]) == list(range(len(graph.ops)))


def _became_ready_late(graph: Graph, one: int, two: int) -> bool:
    place = {index: position for position, index in enumerate(graph.topological)}
    return any(place[needed] >= place[one] for needed in graph.predecessors[two])


def test_neighbours_are_seen_from_both_sides() -> None:
    graph = Graph((B1, F1), (W1,))
    assert graph.predecessors == ((1,), ())
    assert graph.successors == ((), (0,))
    assert graph.topological == (1, 0)
    assert graph.updaters == ((0,),)
    assert graph.readers == ((1,),)


@pytest.mark.parametrize(
    ("ops", "parameters", "path", "message"),
    [
        ((), (W1,), "ops", "at least one op"),
        ((F1, B1), (), "parameters", "at least one parameter"),
        ((F1, F1), (W1,), "ops[1].name", "given twice"),
        ((F1, B1), (W1, W1), "parameters[1].name", "given twice"),
        ((Op("f1", -1, "forward"), B1), (W1,), "ops[0].ns", ">= 0"),
        ((Op("f1", 1, "sideways"), B1), (W1,), "ops[0].pass", "forward or backward"),  # type: ignore[arg-type]
        ((F1, Op("b1", 1, "backward", ("f11",))), (W1,), "ops[1].after[0]", "did you mean 'f1'?"),
        ((F1, B1, Op("f2", 1, "forward", ("b1",))), (W1,), "ops[2].after[0]", "cannot depend"),
        ((F1, Op("b1", 1, "backward")), (W1,), "ops[1].after", "no forward op"),
        ((F1, B1, Op("b2", 1, "backward")), (W1,), "ops[2].after", "no forward op"),
        ((F1, B1, Op("f3", 1, "forward", ("f3",))), (W1,), "ops[2].after", "f3 -> f3"),
        ((F1, B1), (Parameter("w", 0, ("b1",), ("f1",)),), "parameters[0].bytes", ">= 1"),
        ((F1, B1), (Parameter("w", 1, (), ("f1",)),), "parameters[0].updated_by", "at least one"),
        ((F1, B1), (Parameter("w", 1, ("b1",), ()),), "parameters[0].read_by", "at least one"),
        (
            (F1, B1),
            (Parameter("w", 1, ("f1",), ("f1",)),),
            "parameters[0].updated_by",
            "cannot be updated in the forward pass",
        ),
        (
            (F1, B1),
            (Parameter("w", 1, ("b1",), ("f1", "b1")),),
            "parameters[0].read_by[1]",
            "cannot be read in the backward pass",
        ),
        ((F1, B1), (Parameter("w", 1, ("b2",), ("f1",)),), "parameters[0].updated_by", "no op"),
        ((Op("f1", 2**62, "forward"), B1), (W1,), "ops", "sum to at most"),
    ],
)
def test_what_cannot_be(
    ops: tuple[Op, ...], parameters: tuple[Parameter, ...], path: str, message: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        Graph(ops, parameters)
    assert error.value.path == path
    assert message in error.value.message


def test_a_cycle_is_named_in_full() -> None:
    ops = (
        Op("a", 1, "forward", ("c",)),
        Op("b", 1, "forward", ("a",)),
        Op("c", 1, "forward", ("b", "before")),
        Op("before", 1, "forward"),
        Op("behind", 1, "backward", ("c",)),
    )
    with pytest.raises(InvalidInputError) as error:
        Graph(ops, (Parameter("w", 1, ("behind",), ("a",)),))
    assert error.value.path == "ops[0].after"
    assert error.value.message == "the ops form a cycle: a -> b -> c -> a"


def test_a_backward_op_may_depend_on_the_forward_pass_through_others() -> None:
    ops = (F1, B1, Op("b2", 0, "backward", ("b1",)))
    Graph(ops, (W1,))
