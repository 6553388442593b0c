"""What a dataflow graph may be."""

from collections.abc import Callable
from functools import partial
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
        ready = all(place[needed] < place[one] for needed in graph.predecessors[two])
        assert one < two or not ready or one in graph.predecessors[two]
    both = graph.pass_order("backward"), graph.pass_order("forward")
    assert sorted([*both[0], *both[1]]) == list(range(len(graph.ops)))


def test_neighbours_are_seen_from_both_sides() -> None:
    graph = Graph((B1, F1), (W1,))
    assert graph.predecessors == ((1,), ())
    assert graph.successors == ((), (0,))
    assert graph.topological == (1, 0)
    assert graph.updaters == ((0,),)
    assert graph.readers == ((1,),)


def w(size: int = 1, by: tuple[str, ...] = ("b1",), read: tuple[str, ...] = ("f1",)) -> Graph:
    return Graph((F1, B1), (Parameter("w", size, by, read),))


REFUSED: list[tuple[Callable[[], Graph], str, str]] = [
    *(
        (partial(Graph, ops, (W1,)), path, message)
        for ops, path, message in (
            ((), "ops", "at least one op"),
            ((F1, F1), "ops[1].name", "given twice"),
            ((Op("f1", -1, "forward"), B1), "ops[0].ns", ">= 0"),
            ((Op("f1", 1, "sideways"), B1), "ops[0].pass", "forward or backward"),  # type: ignore[arg-type]
            ((F1, Op("b1", 1, "backward", ("f11",))), "ops[1].after[0]", "did you mean 'f1'?"),
            ((F1, B1, Op("f2", 1, "forward", ("b1",))), "ops[2].after[0]", "cannot depend"),
            ((F1, Op("b1", 1, "backward")), "ops[1].after", "no forward op"),
            ((F1, B1, Op("b2", 1, "backward")), "ops[2].after", "no forward op"),
            ((F1, B1, Op("f3", 1, "forward", ("f3",))), "ops[2].after", "f3 -> f3"),
            ((Op("f1", 2**62, "forward"), B1), "ops", "sum to at most"),
        )
    ),
    (lambda: Graph((F1, B1), ()), "parameters", "at least one parameter"),
    (lambda: Graph((F1, B1), (W1, W1)), "parameters[1].name", "given twice"),
    (lambda: w(0), "parameters[0].bytes", ">= 1"),
    (lambda: w(by=()), "parameters[0].updated_by", "at least one"),
    (lambda: w(by=("f1",)), "parameters[0].updated_by", "cannot be updated in the forward pass"),
    (lambda: w(by=("b2",)), "parameters[0].updated_by", "no op"),
    (lambda: w(read=()), "parameters[0].read_by", "at least one"),
    (lambda: w(read=("f1", "b1")), "parameters[0].read_by[1]", "cannot be read in the backward"),
]


@pytest.mark.parametrize(("make", "path", "message"), REFUSED)
def test_what_cannot_be(make: Callable[[], Graph], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        make()
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
