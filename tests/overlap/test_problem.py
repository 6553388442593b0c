"""What a problem and a plan refuse, and where they say it."""

from dataclasses import replace
from typing import Any

import pytest

from planner.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.overlap import (
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
from planner.overlap.bounds import jackson_ns

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


def test_jackson_by_hand() -> None:
    # At 2 the short one with the long tail interrupts.
    assert jackson_ns([(0, 5, 0), (2, 1, 9)]) == 12
    assert jackson_ns([]) == 0


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
        ({"memory_limit_bytes": 15}, "memory_limit_bytes", "largest tensor (16)"),
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
    with pytest.raises(InvalidInputError, match="none was ruled out"):
        solve(problem, method="own_order")
    best = solve(problem, method="exact")
    assert best.plan is not None
    assert check(problem, best.plan).peak_bytes == 10


def test_more_nodes_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.overlap.problem.MAX_NODES", 5)
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
