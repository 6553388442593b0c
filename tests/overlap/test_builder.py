"""Problems that are built by the names of nodes."""

import pytest

from planner.families import overlap
from planner.model.errors import InvalidInputError


def graph() -> overlap.Builder:
    built = overlap.Builder()
    built.add_kind("gather", channel="0", times=[(0, 20), (100, 80)])
    built.add_kind("sum", channel="1", times=[(0, 9)], mergeable=False)
    built.add_collective("a", "gather", 40, unpack_ns=3)
    built.add_op("other", 80)
    built.add_collective("b", "sum", 8, after=["a", "other"])
    built.add_op("use", 50, after=["a", "other"])
    return built


def test_a_wait_stands_before_the_first_that_needs_it() -> None:
    built = graph()
    built.add_tensor(16, producer="a", readers=["wait a", "use"])
    built.add_tensor(8, readers=["b"], kept=True)
    assert built.problem(memory_limit_bytes=99) == overlap.Problem(
        nodes=[
            overlap.Node("a"),
            overlap.Node("other", (), 80),
            overlap.Node("wait a", (0,)),
            overlap.Node("b", (2, 1)),
            overlap.Node("use", (2, 1), 50),
            overlap.Node("wait b", (3,)),
        ],
        kinds=[
            overlap.Kind("gather", "0", ((0, 20), (100, 80))),
            overlap.Kind("sum", "1", ((0, 9),), mergeable=False),
        ],
        collectives=[
            overlap.Collective(0, 2, 0, 40, unpack_ns=3),
            overlap.Collective(3, 5, 1, 8),
        ],
        tensors=[overlap.Tensor(16, 0, (2, 4)), overlap.Tensor(8, None, (3,), kept=True)],
        memory_limit_bytes=99,
    )


def test_what_is_not_there_is_refused_by_name() -> None:
    built = graph()
    with pytest.raises(InvalidInputError, match=r"after\[1\]: there is no node 'othr' .*'other'"):
        built.add_op("late", 1, after=["a", "othr"])
    with pytest.raises(InvalidInputError, match="kind: there is no kind 'sums'"):
        built.add_collective("c", "sums", 1)
    built.add_tensor(1, producer="a", readers=["us"])
    with pytest.raises(InvalidInputError, match=r"tensors\[0\].readers\[0\]: .*'us'"):
        built.problem()


@pytest.mark.parametrize("name", ["a", "other", "wait a"])
def test_a_name_is_one_node(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"name: there is a node '{name}' already"):
        graph().add_op(name, 1)
    with pytest.raises(InvalidInputError, match="name: there is a kind 'sum' already"):
        graph().add_kind("sum", channel="1", times=[(0, 1)])
