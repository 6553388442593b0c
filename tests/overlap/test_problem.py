"""What a problem and a plan refuse, and where they say it; problems by the names of nodes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from planner.families.overlap import (
    Builder,
    Collective,
    Kind,
    Node,
    Plan,
    Problem,
    Tensor,
    check,
    evaluate,
    solve,
    with_limit,
)
from planner.families.overlap.search import no_order
from planner.jsonio.overlap import encode_request
from planner.jsonio.service import decode_answer, decode_request, reply, solve_or_raise
from planner.model.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.solving.methods import REPLAN, Outcome
from planner.solving.result import Result, Status
from planner.testing import problems
from tests.formats.refused import refused
from tests.present import present
from tests.timelines import check_serial

DATA = Path(__file__).parents[2] / "data"
KIND = Kind("all_gather", "0", ((0, 10), (100, 20)))
NODES = [Node("prepare", (), 5), Node("start a", (0,)), Node("wait a", (1,))]
NODES += [Node("start b", (0,)), Node("wait b", (3,)), Node("use", (2, 4), 7)]
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
        ({"collectives": [Collective(1, 4, 0, 5)]}, "collectives[0].wait", "after node 1"),
        ({"collectives": [Collective(1, 9, 0, 5)]}, "collectives[0].wait", "from 0 to 5"),
        ({"collectives": [Collective(1, 1, 0, 5)]}, "collectives[0].wait", "too"),
        ({"collectives": [Collective(1, 2, 1, 5)]}, "collectives[0].kind", "from 0 to 0"),
        ({"collectives": [Collective(0, 2, 0, 5)]}, "nodes[0].duration_ns", "expected 0"),
        ({"kinds": [Kind("k", "0", ())]}, "kinds[0].times", "at least one"),
        ({"kinds": [Kind("k", "0", ((5, 1), (5, 2)))]}, "kinds[0].times[1][0]", "more than 5"),
        ({"kinds": [Kind("k", "0", ((5, 3), (6, 2)))]}, "kinds[0].times[1][1]", "at least 3"),
        ({"tensors": [Tensor(8, 5, (1,))]}, "tensors[0].readers[0]", "after node 5"),
        ({"tensors": [Tensor(8, 0, (9,))]}, "tensors[0].readers[0]", "from 0 to 5"),
        ({"tensors": [Tensor(8, 5, (5,))]}, "tensors[0].readers[0]", "depends on the producer"),
    ],
)
def test_a_problem_says_what_is_wrong(changes: Any, path: str, message: str) -> None:
    if "nodes" in changes:
        changes = {"collectives": (), "tensors": (), **changes}
    with refused(path, message):
        replace(PROBLEM, **changes)


FIRST, SECOND = PROBLEM.collectives
OTHERS = replace(PROBLEM, kinds=[KIND, KIND], collectives=[FIRST, replace(SECOND, kind=1)])
NEVER_MERGED = replace(PROBLEM, kinds=[replace(KIND, mergeable=False)])


@pytest.mark.parametrize(
    ("problem", "plan", "path", "said"),
    [
        (PROBLEM, Plan((0, 1, 2, 3, 4)), "order", ""),
        (PROBLEM, Plan((0, 1, 2, 3, 4, 4)), "order", ""),
        (PROBLEM, Plan((0, 2, 1, 3, 4, 5)), "order[1]", ""),
        (PROBLEM, replace(TOGETHER, merged=((0,),)), "merged[0]", ""),
        (PROBLEM, replace(TOGETHER, merged=((0, 0),)), "merged[0][1]", ""),
        (PROBLEM, replace(TOGETHER, merged=((0, 2),)), "merged[0][1]", ""),
        (PROBLEM, Plan((0, 1, 2, 3, 4, 5), ((0, 1),)), "merged[0]", ""),
        (OTHERS, TOGETHER, None, "one kind"),
        (NEVER_MERGED, TOGETHER, None, "cannot be merged"),
    ],
)
def test_the_checker_refuses(problem: Problem, plan: Plan, path: str | None, said: str) -> None:
    with refused(path, said, InvalidPlanError):
        check(problem, plan)


def reason(found: Result[Plan, Any] | Outcome[Plan]) -> str:
    """Return why there is no plan: the memory."""
    missing = present(found.infeasibility)
    assert missing.binding == ("memory_limit_bytes",)
    return missing.reason


def test_the_checker_counts_memory() -> None:
    check(with_limit(PROBLEM, 54), TOGETHER)
    with pytest.raises(BrokenConstraintError) as caught:
        check(with_limit(PROBLEM, 53), TOGETHER)
    assert caught.value.binding == "memory_limit_bytes"
    # So it takes longer with a byte less.
    assert solve(with_limit(PROBLEM, 54), method="exact").objective_ns == 38
    assert solve(with_limit(PROBLEM, 53), method="exact").objective_ns == 42


def test_own_order_that_needs_more_is_refused_with_a_reason() -> None:
    two = [Tensor(10, 0, (3,)), Tensor(10, 1, (2,))]
    nodes = [Node("a"), Node("b"), Node("read b", (1,)), Node("read a", (0,))]
    problem = Problem(nodes=nodes, tensors=two, memory_limit_bytes=10)
    needs = "none was ruled out; the graph's own order needs 20"
    assert needs in reason(solve(problem, method="own_order"))
    assert solve(problem, method="exact", time_limit=1e-9).status is Status.TIME_LIMIT
    for method in ("exact", "search"):
        assert check(problem, present(solve(problem, method=method).plan)).peak_bytes == 10


@pytest.mark.parametrize("limit", [0, 100_000_000, 204_000_000, 205_520_895, 205_520_896])
def test_the_shipped_graph_with_less_memory_than_it_needs(limit: int) -> None:
    """With nothing that fits, the search went on from levels of merging that it did not have."""
    problem = decode_request((DATA / "overlap" / "two-layers.json").read_bytes()).to_problem()
    for method in ("auto", "search", "exact"):
        result = solve(with_limit(problem, limit), method=method)
        assert (result.status is Status.INFEASIBLE) == (limit < problem.memory_limit_bytes)
        assert result.plan or reason(result)


@pytest.mark.parametrize(
    ("tensors", "what", "needed"),
    [
        (PROBLEM.tensors, "use", 32),
        ([Tensor(8, None, (5,))], "use", 8),
        ([Tensor(8, None, (), kept=True)], "prepare", 8),
        ([Tensor(8, 0, (), kept=True)], "prepare", 8),
        ([Tensor(8, None, (0,)), Tensor(8, None, (5,))], "the begin of the graph", 16),
        ([Tensor(8, 0, kept=True), Tensor(8, 5, kept=True)], "the end of the graph", 16),
    ],
)
def test_memory_that_no_order_keeps_to_is_proven(
    tensors: Sequence[Tensor], what: str, needed: int
) -> None:
    roomy = replace(PROBLEM, tensors=tensors, memory_limit_bytes=needed)
    tight = with_limit(roomy, needed - 1)
    for found in (no_order(tight), solve(tight, method="search")):
        assert f"{what} needs {needed} bytes at once, more than {needed - 1}" in reason(found)
    assert no_order(roomy).infeasibility != no_order(tight).infeasibility


def test_a_reader_depends_on_the_producer_whether_or_not_that_is_said() -> None:
    """Once it could come first: memory was negative then, and no limit was kept."""
    nodes = [Node("a", (), 1), Node("b", (), 1), Node("c", (0,), 1), Node("d", (2,), 1)]
    tensors = [Tensor(5, 0, (1,)), Tensor(5, 0, (3,)), Tensor(5, 1, (3,))]
    problem = Problem(nodes=nodes, tensors=tensors)
    assert [node.after for node in problem.nodes] == [(), (0,), (0,), (2, 0, 1)]
    assert replace(problem) == problem
    with refused("order[0]", "b comes before a, which it needs", InvalidPlanError):
        check(problem, Plan((1, 0, 2, 3)))
    replanned = present(solve(problem, method=REPLAN, start=Plan((1, 0, 2, 3))).infeasibility)
    assert replanned.binding == ("start_plan",)
    assert "b comes before a" in replanned.reason
    assert solve(problem, method="search", start=Plan((1, 0, 2, 3))).objective_ns == 4


def test_more_nodes_or_memory_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    large = [replace(it, pack_bytes=2**54) for it in PROBLEM.collectives]
    problem = replace(PROBLEM, collectives=large, memory_limit_bytes=2**60)
    with pytest.raises(InvalidInputError, match="memory of 62"):
        solve(problem, method="exact")
    assert solve(problem).method == "search"
    monkeypatch.setattr("planner.families.overlap.problem.MAX_NODES", 5)
    with pytest.raises(InvalidInputError, match="expected 1 to 5 nodes, got 6"):
        replace(PROBLEM)


# ---
# Requests and answers.


def request(problem: Problem = PROBLEM, **more: Any) -> dict[str, Any]:
    return {**msgspec.json.decode(encode_request(problem)), **more}


@settings(max_examples=60, deadline=None)
@given(problems("overlap"))
def test_a_request_is_its_problem_and_an_answer_is_read_again(problem: Problem) -> None:
    assert decode_request(encode_request(problem)).to_problem() == problem
    roomy = replace(problem, memory_limit_bytes=None)
    data = reply(encode_request(roomy).encode()).data
    answer, timeline = decode_answer(data)
    check_serial(timeline)
    assert timeline.end_ns == answer.objective_ns
    assert answer.exposed_ns <= answer.own_order_exposed_ns


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("objective_ns", 37),
        *((field, 1) for field in ("exposed_ns", "own_order_exposed_ns", "computation_ns")),
        ("peak_bytes", 1),
        ("transfers", []),
        ("order", [1, 0, 2, 3, 4, 5]),
        ("merged", [[0, 1], [0, 1]]),
        ("memory_limit_bytes", 32),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused(field: str, value: Any) -> None:
    answer = solve_or_raise(request(method="search"))
    decode_answer(msgspec.json.encode(answer))
    with pytest.raises(InvalidInputError):
        decode_answer(msgspec.json.encode({**answer, field: value}))


# ---
# Problems that are built by the names of nodes.


def graph() -> Builder:
    built = Builder()
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
    assert built.problem(memory_limit_bytes=99) == Problem(
        nodes=[
            Node("a"),
            Node("other", (), 80),
            Node("wait a", (0,)),
            Node("b", (2, 1)),
            Node("use", (2, 1), 50),
            Node("wait b", (3,)),
        ],
        kinds=[
            Kind("gather", "0", ((0, 20), (100, 80))),
            Kind("sum", "1", ((0, 9),), mergeable=False),
        ],
        collectives=[Collective(0, 2, 0, 40, unpack_ns=3), Collective(3, 5, 1, 8)],
        tensors=[Tensor(16, 0, (2, 4)), Tensor(8, None, (3,), kept=True)],
        memory_limit_bytes=99,
    )


def test_names_that_are_not_there_or_taken_are_refused() -> None:
    built = graph()
    with pytest.raises(InvalidInputError, match=r"after\[1\]: there is no node 'othr' .*'other'"):
        built.add_op("late", 1, after=["a", "othr"])
    with pytest.raises(InvalidInputError, match="kind: there is no kind 'sums'"):
        built.add_collective("c", "sums", 1)
    for name in ("a", "other", "wait a"):
        with pytest.raises(InvalidInputError, match=f"name: there is a node '{name}' already"):
            built.add_op(name, 1)
    with pytest.raises(InvalidInputError, match="name: there is a kind 'sum' already"):
        built.add_kind("sum", channel="1", times=[(0, 1)])
    built.add_tensor(1, producer="a", readers=["us"])
    with pytest.raises(InvalidInputError, match=r"tensors\[0\].readers\[0\]: .*'us'"):
        built.problem()
