"""Prices against replays that add up every pull; the bound, and where it is met."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.bigdl import (
    Driver,
    Exchange,
    Problem,
    evaluate,
    lower_bound_ns,
    solve,
)
from planner.families.bigdl.evaluation import pulls_at_once
from planner.families.bigdl.family import tree_levels
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import Network
from planner.model.validation import MAX_TOTAL, MAX_VALUE
from planner.solving.result import Status
from tests.bigdl.replays import (
    exchange_turns,
    own_order,
    own_slices,
    problems,
    spark_levels,
    through_driver,
)

ORDERS: Any = st.sampled_from(["rotated", "same"])


def seconds(problem: Problem, sent: list[int], added: list[int]) -> Fraction:
    """The model of a step, from its definition."""
    network = problem.network
    time = Fraction(0)
    for moved, summed in zip(sent, added, strict=True):
        time += (network.startup_ns if moved else 0) + summed * network.reduce_ns_per_byte
        time += Fraction(moved) * 10**9 / network.link_bytes_per_s
    return time


@given(problems(), ORDERS)
def test_an_exchange_costs_what_its_pulls_add_up_to(problem: Problem, order: Any) -> None:
    plan = Exchange(problem.elements, problem.nodes, order)
    cost = evaluate(problem, plan)
    slices = own_slices(plan)
    turns = exchange_turns(problem, own_order(plan), slices)
    aggregate, gather = (sum(step.busiest for step in phase) for phase in turns)
    longest = max(stop - start for start, stop in slices) * problem.element_bytes
    assert [phase.name for phase in cost.phases] == ["local_sum", "aggregate", "gather"]
    sent = [0, aggregate, gather]
    added = [
        (problem.partitions_per_node - 1) * problem.gradient_bytes,
        (problem.nodes - 1) * longest,
        0,
    ]
    assert [phase.sent_bytes for phase in cost.phases] == sent
    assert [phase.added_bytes for phase in cost.phases] == added
    exact = seconds(problem, sent, added)
    assert cost.objective_ns == ceil(exact)
    assert cost.times_full_transfer == exact / problem.network.time(problem.gradient_bytes)
    assert list(cost.ends_ns) == sorted(cost.ends_ns)
    assert cost.driver_bytes == cost.driver_added_bytes == 0


@given(problems(), st.booleans(), st.data())
def test_drivers_cost_what_their_sums_add_up_to(
    problem: Problem, torrent: bool, data: st.DataObject
) -> None:
    levels = tree_levels(problem.tasks)
    if data.draw(st.booleans()):  # any tree, not only Spark's
        lower = data.draw(st.sets(st.integers(1, problem.tasks), max_size=3)) - {problem.tasks}
        levels = (problem.tasks, *sorted(lower, reverse=True))
    cost = evaluate(problem, Driver(levels, torrent))
    replay = through_driver(problem, levels, torrent=torrent)
    everybody = {
        (node, partition): 1
        for node in range(problem.nodes)
        for partition in range(problem.partitions_per_node)
    }
    assert replay.result == everybody
    assert [phase.sent_bytes for phase in cost.phases] == replay.sent
    assert [phase.added_bytes for phase in cost.phases] == replay.added
    assert cost.driver_bytes == replay.driver_bytes
    assert cost.driver_added_bytes == (levels[-1] - 1) * problem.gradient_bytes
    assert cost.objective_ns == ceil(seconds(problem, replay.sent, replay.added))


def test_trees_have_sparks_levels() -> None:
    for tasks in range(1, 2000):
        assert list(tree_levels(tasks)) == spark_levels(tasks)


@given(problems(free_steps=True), st.integers(1, 9))
def test_rotated_is_optimal_where_pieces_divide(problem: Problem, each: int) -> None:
    even = replace(problem, elements=each * problem.nodes)
    assert solve(even).status is Status.OPTIMAL


def direct_ns(problem: Problem) -> int:
    """Everybody sends its summed gradient to everybody in one step, and adds all it gets."""
    size, others = problem.gradient_bytes, problem.nodes - 1
    local = (problem.partitions_per_node - 1) * size
    return ceil(seconds(problem, [0, others * size], [local, others * size]))


def ring_ns(problem: Problem) -> int:
    """A ring's 2(N-1) steps, each moving a piece to the next node."""
    steps = problem.nodes - 1
    piece = -(-problem.elements // problem.nodes) * problem.element_bytes
    local = (problem.partitions_per_node - 1) * problem.gradient_bytes
    added = [local, *[piece] * steps, *[0] * steps]
    return ceil(seconds(problem, [0, *[piece] * 2 * steps], added))


@given(problems(), st.integers(1, 9))
def test_the_bound_is_met_by_one_step_or_two(problem: Problem, each: int) -> None:
    even = replace(problem, elements=each * problem.nodes)
    rotated = solve(even).objective_ns
    assert rotated is not None
    assert lower_bound_ns(even) == min(rotated, direct_ns(even))
    assert lower_bound_ns(even) <= ring_ns(even)
    assert lower_bound_ns(problem) <= min(direct_ns(problem), ring_ns(problem))


def test_optimal_with_a_start_up_too() -> None:
    """Two steps are proven best as long as one would cost more: here 15 - 1.875 T_F more."""
    full = 1600  # T_F in nanoseconds at 1 byte a nanosecond
    for latency, status in ((0, "optimal"), (full * 13, "optimal"), (full * 14, "feasible")):
        problem = Problem(
            elements=400,
            element_bytes=4,
            nodes=16,
            partitions_per_node=1,
            network=Network(Fraction(10**9), latency),
        )
        assert solve(problem).status == status


@given(problems(), ORDERS)
def test_pulls_at_once_are_counted(problem: Problem, order: Any) -> None:
    plan = Exchange(problem.elements, problem.nodes, order)
    rows = pulls_at_once(plan)
    aggregate, _ = exchange_turns(problem, own_order(plan), own_slices(plan))
    nodes = range(problem.nodes)
    pulling = sum(start < stop for start, stop in own_slices(plan))
    assert sum(map(sum, rows)) == pulling * (problem.nodes - 1)
    for row, step in zip(rows, aggregate, strict=True):
        assert [pulls > 0 for pulls in row] == [step.sent[node] > 0 for node in nodes]
    if order == "rotated":
        assert max(map(max, rows)) <= 1
    elif pulling == problem.nodes:
        assert [rows[turn][turn] for turn in nodes] == [problem.nodes - 1] * problem.nodes
    half = problem.nodes // 2
    assert pulls_at_once(plan, half, half) == tuple(row[:half] for row in rows[:half])


def test_a_million_nodes() -> None:
    problem = Problem(
        elements=2**20 + 5,
        element_bytes=4,
        nodes=2**20,
        partitions_per_node=2**20,
        network=Network(Fraction(10**9)),
    )
    cost = evaluate(problem, Exchange(problem.elements, problem.nodes))
    assert cost.phases[1].sent_bytes == 2 * 4 * (2**20 - 1)
    assert tree_levels(problem.tasks) == (2**40, 2**20)


GOOD: dict[str, Any] = {
    "elements": 10,
    "element_bytes": 4,
    "nodes": 4,
    "partitions_per_node": 2,
    "network": Network(Fraction(1)),
}


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"elements": 0}, "elements", "expected an integer >= 1, got 0"),
        ({"elements": True}, "elements", "expected an integer >= 1, got true"),
        ({"elements": MAX_VALUE, "element_bytes": 2}, "elements", "must fit in 63 bits"),
        ({"element_bytes": 0}, "element_bytes", "expected an integer >= 1, got 0"),
        ({"nodes": 0}, "nodes", "expected an integer >= 1, got 0"),
        ({"nodes": 2**20 + 1}, "nodes", "expected an integer <= 1048576, got 1048577"),
        ({"nodes": 2.0}, "nodes", "expected an integer >= 1, got 2.0"),
        ({"partitions_per_node": 0}, "partitions_per_node", "expected an integer >= 1, got 0"),
        ({"partitions_per_node": 2**21}, "partitions_per_node", "expected an integer <= 1048576"),
        ({"network": 5}, "network", "expected a Network, got 5"),
    ],
)
def test_bad_problems(change: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Problem(**{**GOOD, **change})
    assert caught.value.path == path
    assert message in caught.value.message


def test_sums_beyond_63_bits_are_refused() -> None:
    slow = Problem(**{**GOOD, "elements": 2**31, "network": Network(Fraction(1, 1000))})
    with pytest.raises(InvalidInputError, match="the time of a synchronisation"):
        solve(slow)
    fast = Problem(
        **{**GOOD, "elements": MAX_VALUE, "element_bytes": 1, "network": Network(Fraction(2**62))}
    )
    assert solve(fast).objective_ns is not None
    with pytest.raises(InvalidInputError, match="the bytes that pass the driver"):
        solve(fast, method="reduce")
    assert fast.gradient_bytes <= MAX_TOTAL
    with pytest.raises(NotApplicableError, match="the bytes of a phase"):
        solve(fast, method="same_order")
