"""What a problem and a plan refuse, and where they say it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.families.overlap import (
    Collective,
    Kind,
    Node,
    Plan,
    Problem,
    Tensor,
    check,
    evaluate,
    own_order,
    solve,
    with_limit,
)
from planner.families.overlap.search import no_order
from planner.jsonio.service import decode_request
from planner.model.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.solving.methods import REPLAN
from planner.solving.result import Status

DATA = Path(__file__).parents[2] / "data"
KIND = Kind("all_gather", "0", ((0, 10), (100, 20)))
NODES = (
    Node("prepare", (), 5),
    Node("start a", (0,)),
    Node("wait a", (1,)),
    Node("start b", (0,)),
    Node("wait b", (3,)),
    Node("use", (2, 4), 7),
)
PROBLEM = Problem(
    nodes=NODES,
    kinds=[KIND],
    collectives=[Collective(1, 2, 0, 50, 1, 2, 3, 4), Collective(3, 4, 0, 50, 1, 2, 3, 4)],
    tensors=[Tensor(8, 0, (1, 2, 3, 4)), Tensor(16, 1, (5,)), Tensor(16, 3, (5,))],
)
TOGETHER = Plan((0, 1, 3, 2, 4, 5), ((0, 1),))


def test_a_merged_transfer_by_hand() -> None:
    # Prepared at 5, packed until 7, 100 bytes in 20; unpacked until 31, used until 38.
    merged = evaluate(PROBLEM, TOGETHER)
    assert [(t.start_ns, t.end_ns) for t in merged.transfers] == [(7, 27)]
    assert merged.makespan_ns == 38
    assert merged.exposed_ns == 38 - 12
    # Alone: 15 each on one channel.
    apart = evaluate(PROBLEM, Plan((0, 1, 3, 2, 4, 5)))
    assert apart.makespan_ns == 5 + 15 + 15 + 7
    # 8 of `prepare`, two times 16; two times 3 packed, and at the waits two times 4 more.
    assert merged.peak_bytes == 8 + 32 + 6 + 8
    assert apart.peak_bytes == 8 + 32


def test_times_between_points_are_rounded_up_and_go_on() -> None:
    kind = Kind("k", "0", ((10, 4), (13, 5), (20, 5)))
    assert [kind.time_ns(size) for size in (0, 10, 11, 12, 13, 20, 99)] == [4, 4, 5, 5, 5, 5, 5]
    assert Kind("k", "0", ((10, 4), (13, 5))).time_ns(19) == 7


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"nodes": ()}, "nodes", "1 to"),
        ({"nodes": [Node("a", (1,)), Node("b", (0,))]}, "nodes", "cycle of 2 nodes"),
        ({"nodes": [Node("a", (1,)), Node("b")]}, "nodes[0].after[0]", "stands before b"),
        ({"nodes": [Node("a", (7,))]}, "nodes[0].after[0]", "from 0 to 0, got 7"),
        ({"nodes": [Node("a", (), -1)]}, "nodes[0].duration_ns", "got -1"),
        ({"collectives": [Collective(1, 4, 0, 5)]}, "collectives[0].wait", "after node 1"),
        ({"collectives": [Collective(1, 9, 0, 5)]}, "collectives[0].wait", "from 0 to 5"),
        ({"collectives": [Collective(1, 1, 0, 5)]}, "collectives[0].wait", "too"),
        ({"collectives": [Collective(1, 2, 1, 5)]}, "collectives[0].kind", "from 0 to 0"),
        ({"collectives": [Collective(1, 2, 0, -5)]}, "collectives[0].size_bytes", "-5"),
        ({"collectives": [Collective(0, 2, 0, 5)]}, "nodes[0].duration_ns", "expected 0"),
        ({"kinds": [Kind("k", "0", ())]}, "kinds[0].times", "at least one"),
        ({"kinds": [Kind("k", "0", ((5, 1), (5, 2)))]}, "kinds[0].times[1][0]", "more than 5"),
        ({"kinds": [Kind("k", "0", ((5, 3), (6, 2)))]}, "kinds[0].times[1][1]", "at least 3"),
        ({"tensors": [Tensor(8, 5, (1,))]}, "tensors[0].readers[0]", "after node 5"),
        ({"tensors": [Tensor(8, 0, (9,))]}, "tensors[0].readers[0]", "from 0 to 5"),
        ({"tensors": [Tensor(-8, 0)]}, "tensors[0].size_bytes", "-8"),
        ({"tensors": [Tensor(8, 5, (5,))]}, "tensors[0].readers[0]", "depends on the producer"),
        ({"memory_limit_bytes": -1}, "memory_limit_bytes", "got -1"),
    ],
)
def test_a_problem_says_what_is_wrong(changes: Any, path: str, message: str) -> None:
    if "nodes" in changes:
        changes = {"collectives": (), "tensors": (), **changes}
    with pytest.raises(InvalidInputError) as caught:
        replace(PROBLEM, **changes)
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (Plan((0, 1, 2, 3, 4)), "order"),
        (Plan((0, 1, 2, 3, 4, 4)), "order"),
        (Plan((0, 2, 1, 3, 4, 5)), "order[1]"),
        (Plan((0, 1, 3, 2, 4, 5), ((0,),)), "merged[0]"),
        (Plan((0, 1, 3, 2, 4, 5), ((0, 0),)), "merged[0][1]"),
        (Plan((0, 1, 3, 2, 4, 5), ((0, 2),)), "merged[0][1]"),
        (Plan((0, 1, 2, 3, 4, 5), ((0, 1),)), "merged[0]"),
    ],
)
def test_the_checker_refuses(plan: Plan, path: str) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        check(PROBLEM, plan)
    assert caught.value.path == path


def test_the_checker_refuses_to_merge_what_differs() -> None:
    other = replace(PROBLEM.collectives[1], kind=1)
    two = replace(PROBLEM, kinds=[KIND, KIND], collectives=[PROBLEM.collectives[0], other])
    with pytest.raises(InvalidPlanError, match="one kind"):
        check(two, TOGETHER)
    never = replace(PROBLEM, kinds=[replace(KIND, mergeable=False)])
    with pytest.raises(InvalidPlanError, match="cannot be merged"):
        check(never, TOGETHER)


def test_the_checker_counts_memory() -> None:
    check(with_limit(PROBLEM, 54), TOGETHER)
    with pytest.raises(BrokenConstraintError) as caught:
        check(with_limit(PROBLEM, 53), TOGETHER)
    assert caught.value.binding == "memory_limit_bytes"
    # So it takes longer with a byte less.
    assert solve(with_limit(PROBLEM, 54), method="exact").objective_ns == 38
    assert solve(with_limit(PROBLEM, 53), method="exact").objective_ns == 42


def test_a_node_that_needs_more_than_there_is_proves_it() -> None:
    result = solve(with_limit(PROBLEM, 31), method="search")
    assert result.plan is None
    assert result.infeasibility is not None
    assert "use needs 32 bytes" in result.infeasibility.reason
    assert result.infeasibility.binding == ("memory_limit_bytes",)


def test_own_order_that_needs_more_is_refused_with_a_reason() -> None:
    two = [Tensor(10, 0, (3,)), Tensor(10, 1, (2,))]
    nodes = [Node("a"), Node("b"), Node("read b", (1,)), Node("read a", (0,))]
    problem = Problem(nodes=nodes, tensors=two, memory_limit_bytes=10)
    refused = solve(problem, method="own_order").infeasibility
    assert refused is not None
    assert "none was ruled out; the graph's own order needs 20" in refused.reason
    assert refused.binding == ("memory_limit_bytes",)
    for method in ("exact", "search"):
        best = solve(problem, method=method)
        assert best.plan is not None
        assert check(problem, best.plan).peak_bytes == 10


@pytest.mark.parametrize("limit", [0, 100_000_000, 204_000_000, 205_520_895, 205_520_896])
def test_the_shipped_graph_with_less_memory_than_it_needs(limit: int) -> None:
    """With nothing that fits, the search went on from levels of merging that it did not have."""
    problem = decode_request((DATA / "overlap" / "two-layers.json").read_bytes()).to_problem()
    for method in ("auto", "search", "exact"):
        result = solve(with_limit(problem, limit), method=method)
        if limit == problem.memory_limit_bytes:
            assert result.plan is not None
        else:
            assert result.status is Status.INFEASIBLE
            assert result.infeasibility is not None
            assert result.infeasibility.binding == ("memory_limit_bytes",)


@pytest.mark.parametrize(
    ("tensor", "limit", "what"),
    [
        (Tensor(8, None, (5,)), 7, "use needs"),
        (Tensor(8, None, (), kept=True), 7, "prepare needs"),
        (Tensor(8, 0, (), kept=True), 7, "prepare needs"),
    ],
)
def test_memory_that_no_order_keeps_to_is_proven(tensor: Tensor, limit: int, what: str) -> None:
    many = replace(PROBLEM, tensors=[tensor], memory_limit_bytes=limit)
    reason = no_order(many).infeasibility
    assert reason is not None
    assert what in reason.reason
    assert no_order(replace(many, memory_limit_bytes=8)).infeasibility != reason


def test_what_is_there_at_the_begin_or_stays_to_the_end_is_added_up() -> None:
    for tensors, moment in (
        ([Tensor(8, None, (0,)), Tensor(8, None, (5,))], "begin"),
        ([Tensor(8, 0, kept=True), Tensor(8, 5, kept=True)], "end"),
    ):
        reason = no_order(replace(PROBLEM, tensors=tensors, memory_limit_bytes=15)).infeasibility
        assert reason is not None
        assert f"the {moment} of the graph needs 16 bytes at once, more than 15" in reason.reason


def test_a_reader_depends_on_the_producer_whether_or_not_that_is_said() -> None:
    """Once it could come first: memory was negative then, and no limit was kept."""
    nodes = [Node("a", (), 1), Node("b", (), 1), Node("c", (0,), 1), Node("d", (2,), 1)]
    tensors = [Tensor(5, 0, (1,)), Tensor(5, 0, (3,)), Tensor(5, 1, (3,))]
    problem = Problem(nodes=nodes, tensors=tensors)
    assert [node.after for node in problem.nodes] == [(), (0,), (0,), (2, 0, 1)]
    assert replace(problem) == problem
    with pytest.raises(InvalidPlanError, match="b comes before a, which it needs") as caught:
        check(problem, Plan((1, 0, 2, 3)))
    assert caught.value.path == "order[0]"
    replanned = solve(problem, method=REPLAN, start=Plan((1, 0, 2, 3))).infeasibility
    assert replanned is not None
    assert "b comes before a" in replanned.reason


def test_more_nodes_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.families.overlap.problem.MAX_NODES", 5)
    with pytest.raises(InvalidInputError, match="expected 1 to 5 nodes, got 6"):
        replace(PROBLEM)


def test_many_nodes_are_planned_without_looking_at_all_pairs() -> None:
    layers = 2000
    nodes, collectives = [], []
    for layer in range(layers):
        begin = 3 * layer
        nodes += [
            Node(f"start {layer}"),
            Node(f"wait {layer}", (begin,)),
            Node(f"use {layer}", (begin + 1, *([begin - 1] if layer else [])), 30),
        ]
        collectives.append(Collective(begin, begin + 1, 0, 100))
    problem = Problem(nodes=nodes, kinds=[KIND], collectives=collectives)
    result = solve(problem, method="greedy")
    assert result.objective_ns == 20 + 30 * layers
    assert evaluate(problem, own_order(problem)).makespan_ns == 50 * layers


def test_memory_that_the_model_cannot_add_up_is_refused_by_it() -> None:
    large = [replace(it, pack_bytes=2**54) for it in PROBLEM.collectives]
    problem = replace(PROBLEM, collectives=large, memory_limit_bytes=2**60)
    with pytest.raises(InvalidInputError, match="memory of 62"):
        solve(problem, method="exact")
    assert solve(problem).method == "search"
