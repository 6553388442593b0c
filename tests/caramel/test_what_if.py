"""Regret, plans for scenarios, advice: against prices by hand, enumeration and literal buckets."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel import CARAMEL, Plan, Problem, evaluate, solve
from planner.model.contention import Interference
from planner.model.costs import AffineCost
from planner.model.graphs import Graph
from planner.model.validation import MAX_VALUE
from planner.solving.advice import advise
from planner.solving.deadline import NEVER
from planner.solving.scenarios import MAX_LOSS, SCENARIOS, Scenario, ScenarioSet
from planner.solving.what_if import regrets, robust_plan
from tests.caramel.exact_oracles import best_split, price, whole_plans
from tests.caramel.graph_strategies import graphs
from tests.caramel.test_baselines import chain
from tests.outlooks import counted, outlooks

MEBIBYTE = 2**20


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
        sent = ceil(sum(part.stop - part.start for part in group.parts) * plan.traffic)
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


def small(duration: int = 100, startup: int = 10) -> Problem:
    return Problem(chain((duration, duration, 50)), AffineCost(startup, Fraction(1)))


def large() -> Problem:
    """One whose start-up may not be twice as long."""
    return small(duration=1, startup=MAX_VALUE // 8 * 3)


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
    found = advise(CARAMEL, problem, result, NEVER)
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
    problem = Problem(chain((forward, 1, 1), (forward, 100, 100)), AffineCost(0, Fraction(1)))
    found = advise(CARAMEL, problem, solve(problem), NEVER)
    assert found is not None
    assert found.ddp_ns == 2 * forward + 202
    assert found.plan_ns == 2 * forward + 102
    assert found.keep_ddp is keep
    assert not found.contention
    beside = replace(problem, interference=Interference(1, slowdown=Fraction(1)))
    told = advise(CARAMEL, beside, solve(beside), NEVER)
    assert told is not None
    assert told.contention


@settings(max_examples=60)
@given(problems(), outlooks())
def test_no_plan_of_whole_parameters_is_better(problem: Problem, outlook: ScenarioSet) -> None:
    usual = solve(problem)
    assert usual.plan is not None
    assert usual.objective_ns is not None
    _, prospect = robust_plan(CARAMEL, problem, outlook, NEVER)
    assert prospect is not None
    others = [CARAMEL.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
    times = [evaluate(other, usual.plan).iteration_ns for other in others]
    assert prospect.usual_value == counted(outlook, times)
    for groups in whole_plans(problem.windows):
        if price(problem.windows, problem.cost, groups) <= MAX_LOSS * usual.objective_ns:
            value = counted(outlook, [price(one.windows, one.cost, groups) for one in others])
            assert prospect.bound <= prospect.value <= value


@settings(max_examples=20)
@given(problems(), outlooks(), st.integers(0, 30))
def test_beside_computation_it_holds_too(
    problem: Problem, outlook: ScenarioSet, startup: int
) -> None:
    disturbed = replace(problem, interference=Interference(startup, slowdown=Fraction(3, 2)))
    result, prospect = robust_plan(CARAMEL, disturbed, outlook, NEVER)
    assert prospect is not None
    assert result.plan is not None
    assert prospect.bound <= prospect.value <= prospect.usual_value


def test_little_is_given_away_whatever_scenarios_ask_for() -> None:
    """With start-ups as long as that one transfer is best; as they are, two are much shorter."""
    problem = Problem(chain((100, 100, 50), (100, 100, 50)), AffineCost(1, Fraction(1)))
    dear = ScenarioSet(((Scenario(startup=Fraction(1000)), Fraction(1)),))
    own = solve(CARAMEL.perturb(problem, dear.scenarios[0][0])).plan
    assert own is not None
    result, prospect = robust_plan(CARAMEL, problem, dear, NEVER)
    assert prospect is not None
    assert result.objective_ns is not None
    assert evaluate(problem, own).iteration_ns > MAX_LOSS * prospect.usual_ns >= result.objective_ns


def test_orders_nobody_enforces_become_one() -> None:
    problem = small()
    assert not problem.fixed_order
    result, _ = robust_plan(CARAMEL, problem, ScenarioSet(((SCENARIOS[0], Fraction(1)),)), NEVER)
    assert result.plan is not None
    assert len(result.plan.backward_orders) == 1


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(st.integers(1, 4), 2))
def test_the_best_plan_there_is_lies_between_bound_and_best(problem: Problem) -> None:
    plan = solve(problem, method="caramel").plan
    assert plan is not None
    for row in regrets(CARAMEL, problem, plan, NEVER):
        other = CARAMEL.perturb(problem, row.scenario)
        best = best_split(other.windows, other.cost)
        assert row.bound_ns is not None
        assert row.bound_ns <= best <= row.best_ns
        if best:
            assert row.at_most is not None
            assert row.at_least <= Fraction(row.plan_ns, best) <= row.at_most


@pytest.mark.slow
@settings(max_examples=30)
@given(problems(st.integers(1, 4), 2), outlooks())
def test_the_bound_is_one_of_the_scenarios_by_themselves(
    problem: Problem, outlook: ScenarioSet
) -> None:
    _, prospect = robust_plan(CARAMEL, problem, outlook, NEVER)
    assert prospect is not None
    others = [CARAMEL.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
    assert prospect.bound <= counted(outlook, [best_split(o.windows, o.cost) for o in others])
