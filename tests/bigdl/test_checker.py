"""The checker accepts exactly what sums every gradient once; it must reject every mutation."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.families.bigdl import Driver, Exchange, Problem, check, check_pulls
from planner.families.bigdl.evaluation import COMPLETE_NODES
from planner.families.bigdl.problem import slice_of
from planner.model.errors import InvalidPlanError
from planner.model.network import Network
from tests.bigdl.replays import contributions, own_order, own_slices, problems

NETWORK = Network(1)  # type: ignore[arg-type]


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(InvalidPlanError) as caught:
        check_pulls(*arguments, **options)
    return caught.value.path


@given(st.integers(1, 500), st.integers(1, 500))
def test_slices_tile_the_gradient_evenly(elements: int, nodes: int) -> None:
    slices = [slice_of(elements, nodes, index) for index in range(nodes)]
    assert [one for start, stop in slices for one in range(start, stop)] == list(range(elements))
    sizes = [stop - start for start, stop in slices]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(problems(), st.sampled_from(["rotated", "same"]))
def test_plans_replayed_count_every_gradient_once_everywhere(problem: Problem, order: Any) -> None:
    plan = Exchange(problem.elements, problem.nodes, order)
    check(problem, plan)
    once = dict.fromkeys(range(problem.nodes), 1)
    for weights in contributions(problem, own_order(plan), own_slices(plan)):
        assert all(weight == once for weight in weights)


@given(problems(), st.sampled_from(["rotated", "same"]))
def test_lists_of_a_plan_pass_and_say_the_same(problem: Problem, order: Any) -> None:
    plan = Exchange(problem.elements, problem.nodes, order)
    rows = own_order(plan)
    check_pulls(problem.elements, own_slices(plan), rows, spread=order == "rotated")
    turns = range(problem.nodes)
    assert rows == [tuple(plan.asked(node, turn) for turn in turns) for node in turns]


@given(problems(max_nodes=8), st.data())
def test_lists_pass_exactly_if_their_replay_does(problem: Problem, data: st.DataObject) -> None:
    """Any slices and any orders: the checker and the replay agree."""
    nodes, elements = problem.nodes, problem.elements
    end = st.integers(0, elements)
    slices = own_slices(Exchange(elements, nodes))
    order = [list(row) for row in own_order(Exchange(elements, nodes))]
    for _ in range(data.draw(st.integers(0, 3))):
        node, turn = data.draw(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)))
        if data.draw(st.booleans()):
            slices[node] = tuple(sorted(data.draw(st.tuples(end, end))))  # type: ignore[assignment]
        else:
            order[node][turn] = data.draw(st.integers(0, nodes - 1))
    once = dict.fromkeys(range(nodes), 1)
    right = all(
        weight == once for weights in contributions(problem, order, slices) for weight in weights
    ) and all(sorted(row) == list(range(nodes)) for row in order)
    if right and all(stop > start for start, stop in slices):
        check_pulls(elements, slices, order, spread=False)
    elif not right:
        assert refusal(elements, slices, order, spread=False)


def test_slices_do_not_run_backwards() -> None:
    """Though they start where the one before ends, and end where the last should."""
    order = own_order(Exchange(10, 3))
    assert refusal(10, [(0, 7), (7, 4), (4, 10)], order) == "slices[1]"


@given(problems(), st.data())
def test_every_mutation_is_rejected(problem: Problem, data: st.DataObject) -> None:
    assume(problem.nodes > 1)
    nodes = problem.nodes
    slices = own_slices(Exchange(problem.elements, nodes))
    order = [list(row) for row in own_order(Exchange(problem.elements, nodes))]
    node = data.draw(st.integers(0, nodes - 1))
    turn, other = data.draw(st.permutations(range(nodes)))[:2]
    start, stop = slices[node]
    kinds = "overlap gap long twice missing stranger more swap drop row"
    kind = data.draw(st.sampled_from(kinds.split()))
    if kind == "overlap":
        assume(start > 0)
        slices[node] = start - 1, stop
    elif kind == "gap":
        assume(stop > start)
        slices[node] = start + 1, stop
    elif kind == "long":
        slices[node] = start, stop + 1
    elif kind == "twice":
        order[node][turn] = order[node][other]
    elif kind == "missing":
        del order[node][turn]
    elif kind == "stranger":
        order[node][turn] = data.draw(st.sampled_from([-1, nodes]))
    elif kind == "more":
        order[node].append(other)
    elif kind == "swap":  # still a permutation, but two ask the same one
        order[node][turn], order[node][other] = order[node][other], order[node][turn]
    elif kind == "drop":
        del order[node]
    else:
        order[node] = list(order[node - 1])
    assert refusal(problem.elements, slices, order)
    if kind in ("swap", "row"):
        check_pulls(problem.elements, slices, order, spread=False)


def test_paths_of_refusals() -> None:
    slices, order = [(0, 2), (2, 3)], [[0, 1], [1, 0]]
    check_pulls(3, slices, order)
    assert refusal(3, [], []) == "slices"
    assert refusal(4, slices, order) == "slices"
    assert refusal(3, [(0, 2), (1, 3)], order) == "slices[1]"
    assert refusal(3, slices, [[0, 1]]) == "pull_order"
    assert refusal(3, slices, [[0, 1], [1, 1]]) == "pull_order[1]"
    assert refusal(3, slices, [[0, 1], [0, 1]]) == "pull_order[1][0]"


@pytest.mark.parametrize(
    ("slices", "order", "path"),
    [
        (None, [[0]], "slices"),
        ("01", [[0]], "slices"),
        ([(0, 1, 1), (1, 2)], [[0, 1], [1, 0]], "slices[0]"),
        ([(0, 1), (1, 2.0)], [[0, 1], [1, 0]], "slices[1]"),
        ([(0, True), (1, 2)], [[0, 1], [1, 0]], "slices[0]"),
        ([(0, 1), 2], [[0, 1], [1, 0]], "slices[1]"),
        ([(0, 1), (1, 2)], None, "pull_order"),
        ([(0, 1), (1, 2)], [["a", 1], [1, 0]], "pull_order[0]"),
        ([(0, 1), (1, 2)], [[0, 1], [True, 0]], "pull_order[1]"),
        ([(0, 1), (1, 2)], [[0, 1], 1], "pull_order[1]"),
    ],
)
def test_lists_of_anything_are_refused_with_a_path(slices: Any, order: Any, path: str) -> None:
    assert refusal(2, slices, order) == path


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (Exchange(9, 4), "elements"),
        (Exchange(10, 5), "nodes"),
        (Exchange(10, 4, "any"), "order"),  # type: ignore[arg-type]
        (Driver(()), "levels"),
        (Driver((7,)), "levels"),
        (Driver((8, 8)), "levels[1]"),
        (Driver((8, 3, 0)), "levels[2]"),
        (Driver((8, 2.5)), "levels[1]"),  # type: ignore[arg-type]
        (Driver((8.0, 2)), "levels"),  # type: ignore[arg-type]
        (Driver(8), "levels"),  # type: ignore[arg-type]
        ("rotated", ""),
        (None, ""),
    ],
)
def test_plans_of_another_problem(plan: Any, path: str) -> None:
    problem = Problem(elements=10, element_bytes=4, nodes=4, partitions_per_node=2, network=NETWORK)
    with pytest.raises(InvalidPlanError) as caught:
        check(problem, plan)
    assert caught.value.path == path


def test_true_is_no_number_of_nodes() -> None:
    alone = Problem(elements=10, element_bytes=4, nodes=1, partitions_per_node=2, network=NETWORK)
    with pytest.raises(InvalidPlanError, match="nodes: expected 1, got true"):
        check(alone, Exchange(10, True))


@pytest.mark.parametrize("nodes", [5, COMPLETE_NODES, COMPLETE_NODES + 1, 1000])
@pytest.mark.parametrize("wrong", ["turn", "row", "slice"])
def test_lazy_plans_are_looked_at_in_every_tier(
    nodes: int, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(
        elements=3 * nodes + 1, element_bytes=4, nodes=nodes, partitions_per_node=2, network=NETWORK
    )
    plan = Exchange(problem.elements, nodes)
    check(problem, plan)
    if wrong == "slice":
        monkeypatch.setattr(
            Exchange, "slice", lambda self, node: slice_of(self.elements + 1, self.nodes, node)
        )
    elif wrong == "turn":
        monkeypatch.setattr(Exchange, "asked", lambda self, node, turn: turn)
    else:
        monkeypatch.setattr(Exchange, "asked", lambda self, node, turn: node)
    with pytest.raises(InvalidPlanError):
        check(problem, plan)
    if wrong == "turn":
        check(problem, replace(plan, order="same"))
