"""Regret and advice: held against prices made by hand, enumeration and literal buckets."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner.caramel.scenarios import advised, regretted, under

from planner.caramel import Plan, Problem, evaluate, solve
from planner.costs import AffineCost
from planner.deadline import NEVER, Deadline
from planner.graphs import Graph, Op, Parameter
from planner.scenarios import SCENARIOS, Scenario
from planner.validation import MAX_VALUE
from tests.caramel.exact_oracles import best_split
from tests.caramel.graph_strategies import graphs
from tests.strategies import affine_costs

MEBIBYTE = 2**20
METHODS = ("auto", "caramel", "ddp", "layer_by_layer", "bytescheduler")


@st.composite
def problems(
    draw: st.DrawFn, sizes: st.SearchStrategy[int] | None = None, most: int = 3
) -> Problem:
    """Small graphs whose times can be scaled without rounding, under one op order."""
    kept = {} if sizes is None else {"sizes": sizes}
    graph = draw(graphs(max_ops=6, max_parameters=most, **kept))
    graph = Graph(
        tuple(replace(op, duration_ns=100 * op.duration_ns) for op in graph.ops), graph.parameters
    )
    cost = AffineCost(2 * draw(st.integers(0, 400)), Fraction(91 * draw(st.integers(0, 3))))
    free = Problem(graph, cost)
    order = (graph.ops[index].name for index in (*free.order.forward, *free.order.backward))
    return Problem(graph, cost, op_order=tuple(order))


def takes(problem: Problem, plan: Plan, scenario: Scenario) -> int:
    """What a plan lasts in a scenario, worked out from the numbers of the problem as it is."""
    graph, cost = problem.graph, problem.cost
    assert isinstance(cost, AffineCost)
    startup = round(cost.startup_ns * scenario.startup)
    rate = Fraction(cost.ns_per_byte) / scenario.bandwidth
    backward = scenario.computation * (1 + scenario.late)
    lasting = [
        round(op.duration_ns * (backward if op.phase == "backward" else scenario.computation))
        for op in graph.ops
    ]
    ready = [0] * len(graph.parameters)
    for order in plan.backward_orders:
        done = 0
        for index in order:
            done += lasting[index]
            for j, parameter in enumerate(graph.parameters):
                if graph.ops[index].name in parameter.updated_by:
                    ready[j] = max(ready[j], done)
    forward_begins = sum(lasting[index] for index in plan.backward_orders[0])
    arrived = [0] * len(graph.parameters)
    free = 0
    for group in plan.groups:
        sent = sum(part.stop - part.start for part in group.parts)
        free = max([free, group.not_before_ns, *(ready[part.parameter] for part in group.parts)])
        free += startup + ceil(rate * sent)
        for part in group.parts:
            arrived[part.parameter] = max(arrived[part.parameter], free)
    now = max(forward_begins, free) if plan.barrier else forward_begins
    for index in plan.forward_order:
        for j, parameter in enumerate(graph.parameters):
            if graph.ops[index].name in parameter.read_by:
                now = max(now, arrived[j])
        now += lasting[index]
    return now


@given(problems(), st.sampled_from(METHODS))
def test_every_row_is_priced_and_bounded(problem: Problem, method: str) -> None:
    plan = solve(problem, method=method).plan
    assert plan is not None
    rows = regretted(problem, plan, NEVER)
    assert [row.scenario for row in rows] == list(SCENARIOS)
    for row in rows:
        assert row.plan_ns == takes(problem, plan, row.scenario)
        other = under(problem, row.scenario)
        for name, time in (("ddp", row.ddp_ns), ("layer_by_layer", row.layers_ns)):
            rule = solve(other, method=name).plan
            assert rule is not None
            assert time == evaluate(other, rule).iteration_ns
        assert row.ddp_ns is not None
        assert row.layers_ns is not None
        assert row.bound_ns is not None
        assert row.bound_ns <= row.best_ns <= min(row.plan_ns, row.ddp_ns, row.layers_ns)
        assert row.at_most is not None
        assert 1 <= row.at_least <= row.at_most


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(st.integers(1, 4), 2))
def test_the_best_plan_there_is_lies_between_bound_and_best(problem: Problem) -> None:
    plan = solve(problem, method="caramel").plan
    assert plan is not None
    for row in regretted(problem, plan, NEVER):
        other = under(problem, row.scenario)
        best = best_split(other.windows, other.cost)
        assert row.bound_ns is not None
        assert row.bound_ns <= best <= row.best_ns
        if best:
            assert row.at_most is not None
            assert row.at_least <= Fraction(row.plan_ns, best) <= row.at_most


@given(problems(), st.integers(2, 1000))
def test_times_in_another_unit_change_no_ratio(problem: Problem, unit: int) -> None:
    plan = solve(problem).plan
    assert plan is not None
    assert isinstance(problem.cost, AffineCost)
    graph = Graph(
        tuple(replace(op, duration_ns=unit * op.duration_ns) for op in problem.graph.ops),
        problem.graph.parameters,
    )
    cost = AffineCost(unit * problem.cost.startup_ns, unit * problem.cost.ns_per_byte)
    scaled = regretted(replace(problem, graph=graph, cost=cost), plan, NEVER)
    for row, other in zip(regretted(problem, plan, NEVER), scaled, strict=True):
        assert other.plan_ns == unit * row.plan_ns
        assert row.ddp_ns is not None
        assert row.layers_ns is not None
        assert row.bound_ns is not None
        assert (other.ddp_ns, other.layers_ns) == (unit * row.ddp_ns, unit * row.layers_ns)
        assert other.best_ns >= unit * row.bound_ns - unit  # whose rounding is up to a nanosecond


def small(duration: int = 100, startup: int = 10) -> Problem:
    ops = (Op("f", duration, "forward"), Op("b", duration, "backward", ("f",)))
    return Problem(
        Graph(ops, (Parameter("w", 50, ("b",), ("f",)),)), AffineCost(startup, Fraction(1))
    )


def test_what_there_is_no_time_for_is_left_out() -> None:
    problem = small()
    plan = solve(problem).plan
    assert plan is not None
    over = Deadline(1e-9)
    while not over.passed:
        pass
    assert regretted(problem, plan, over) == ()
    assert advised(problem, solve(problem), over) is None


def test_a_scenario_whose_numbers_are_too_large_is_left_out() -> None:
    problem = small(duration=1, startup=MAX_VALUE // 8 * 3)
    plan = solve(problem).plan
    assert plan is not None
    kept = [row.scenario for row in regretted(problem, plan, NEVER)]
    assert kept == [scenario for scenario in SCENARIOS if scenario.startup != 2]


def buckets(problem: Problem, first: int, others: int) -> Iterator[list[int]]:
    """DDP's buckets, filled one gradient at a time as they become ready."""
    heads, limit = problem.windows.heads, first
    bucket: list[int] = []
    for j in sorted(range(len(heads)), key=lambda j: (heads[j], -j)):
        bucket.append(j)
        if sum(problem.windows.sizes[one] for one in bucket) >= limit:
            yield bucket
            bucket, limit = [], others
    if bucket:
        yield bucket


def lasts(problem: Problem, sent: Iterator[list[int]] | Sequence[list[int]]) -> int:
    """What an iteration lasts if its forward pass waits for all of that."""
    known, free = problem.windows, 0
    for bucket in sent:
        size = sum(known.sizes[j] for j in bucket)
        free = max(free, *(known.heads[j] for j in bucket)) + problem.cost.cost_ns(size)
    return max(free, known.backward_ns) + known.forward_ns


@given(problems(st.integers(1, 30 * MEBIBYTE), 6))
def test_ddp_is_priced_with_its_best_buckets(problem: Problem) -> None:
    result = solve(problem)
    found = advised(problem, result, NEVER)
    assert found is not None
    default = lasts(problem, buckets(problem, MEBIBYTE, 25 * MEBIBYTE))
    sizes = {
        size: lasts(problem, buckets(problem, size * MEBIBYTE, size * MEBIBYTE))
        for size in (1, 5, 10, 25, 50, 100)
    }
    assert found.ddp_ns == min(default, *sizes.values())
    assert found.ddp_ns == (default if found.bucket_mb is None else sizes[found.bucket_mb])
    assert result.objective_ns is not None
    assert found.keep_ddp == (100 * found.ddp_ns < 103 * max(result.objective_ns, 1))
    if found.at_most is not None and result.objective_ns:
        assert found.gain <= found.at_most


@pytest.mark.parametrize(
    ("forward", "keep"), [(100, False), (100_000, True)], ids=["worth it", "not"]
)
def test_ddp_is_kept_where_its_barrier_costs_nothing_to_speak_of(forward: int, keep: bool) -> None:
    """The second layer's gradient could be sent beside the first layer's forward pass."""
    ops = (
        Op("f1", forward, "forward"),
        Op("f2", forward, "forward", ("f1",)),
        Op("b2", 100, "backward", ("f2",)),
        Op("b1", 1, "backward", ("b2", "f1")),
    )
    parameters = (
        Parameter("w1", 1, ("b1",), ("f1",)),
        Parameter("w2", 100, ("b2",), ("f2",)),
    )
    problem = Problem(Graph(ops, parameters), AffineCost(0, Fraction(1)))
    found = advised(problem, solve(problem), NEVER)
    assert found is not None
    assert found.ddp_ns == 2 * forward + 202
    assert found.plan_ns == 2 * forward + 102
    assert found.keep_ddp is keep


@given(problems(), affine_costs())
def test_nothing_otherwise_is_the_problem_itself(problem: Problem, cost: AffineCost) -> None:
    one = replace(problem, cost=cost)
    assert under(one, Scenario()) == one
