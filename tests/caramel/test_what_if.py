"""Regret, plans for scenarios, advice: against prices by hand, enumeration and literal buckets."""

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
from planner.solving.advice import Advice, advise
from planner.solving.bucketing import ddp_buckets
from planner.solving.deadline import NEVER
from planner.solving.scenarios import MAX_LOSS, SCENARIOS, ExpectedCost, Scenario, ScenarioSet
from planner.solving.what_if import robust_plan
from tests.caramel.exact_oracles import price, whole_plans
from tests.caramel.graph_strategies import graphs, sizes
from tests.caramel.making import solved
from tests.caramel.test_targets import end_of, spans
from tests.iteration.making import chain
from tests.iteration.pricing import run
from tests.outlooks import counted, outlooks
from tests.present import present
from tests.solved import Solved

MEBIBYTE = 2**20


@st.composite
def problems(draw: st.DrawFn, sizes: st.SearchStrategy[int] = sizes, most: int = 3) -> Problem:
    """Small graphs whose times can be scaled without rounding, under one op order."""
    graph = draw(graphs(max_ops=6, max_parameters=most, sizes=sizes)).scaled(Fraction(100))
    cost = AffineCost(2 * draw(st.integers(0, 400)), Fraction(91 * draw(st.integers(0, 3))))
    free = Problem(graph, cost)
    order = graph.names_of((*free.order.forward, *free.order.backward))
    return Problem(graph, cost, op_order=order)


def takes(problem: Problem, plan: Plan, scenario: Scenario) -> Fraction:
    """What a plan lasts in a scenario, worked out from the numbers of the problem as it is."""
    cost = problem.cost
    assert isinstance(cost, AffineCost)
    startup, rate = round(cost.startup_ns * scenario.startup), cost.ns_per_byte / scenario.bandwidth
    factors = {"forward": scenario.computation, "backward": scenario.computation}
    factors["backward"] *= 1 + scenario.late
    ops = (
        replace(op, duration_ns=round(op.duration_ns * factors[op.phase]))
        for op in problem.graph.ops
    )
    sizes = (sum(stop - start for _, start, stop in one.parts) for one in plan.groups)
    prices = [startup + ceil(rate * ceil(size * plan.traffic)) for size in sizes]
    return run(Graph(tuple(ops), problem.graph.parameters), plan, prices)


def robust(problem: Problem, outlook: ScenarioSet) -> tuple[Solved[Plan], ExpectedCost]:
    result, prospect = robust_plan(CARAMEL, problem, outlook, NEVER)
    return Solved.of(result), present(prospect)


def small(duration: int = 100, startup: int = 10) -> Problem:
    return Problem(chain((duration, duration, 50)), AffineCost(startup, Fraction(1)))


def large() -> Problem:
    """One whose start-up may not be twice as long."""
    return small(duration=1, startup=MAX_VALUE // 8 * 3)


@given(
    problems(st.integers(1, 30 * MEBIBYTE), 6),
    st.tuples(*[st.sampled_from([MEBIBYTE, 5 * MEBIBYTE, 25 * MEBIBYTE])] * 2),
)
def test_ddp_is_priced_with_its_buckets(problem: Problem, limits: tuple[int, int]) -> None:
    """The forward pass waits for all of them."""
    known = problem.windows
    order = sorted(range(len(known.heads)), key=lambda j: (known.heads[j], -j))
    counts = ddp_buckets([known.sizes[j] for j in order], *limits)
    buckets = (order[start:stop] for start, stop in spans(counts))
    end = max(end_of(buckets, known.heads, known.sizes, problem.cost), known.backward_ns)
    assert CARAMEL.ddp_price(problem, limits, NEVER) == end + known.forward_ns


@pytest.mark.parametrize(
    ("forward", "keep"), [(100, False), (100_000, True)], ids=["worth it", "not"]
)
def test_ddp_is_kept_where_its_barrier_costs_nothing_to_speak_of(forward: int, keep: bool) -> None:
    """The second layer's gradient could be sent beside the first layer's forward pass."""
    problem = Problem(chain((forward, 1, 1), (forward, 100, 100)), AffineCost(0, Fraction(1)))
    found = present(advise(CARAMEL, problem, solve(problem), NEVER))
    assert (found.ddp_ns, found.plan_ns) == (2 * forward + 202, 2 * forward + 102)
    assert (found.keep_ddp, found.contention) == (keep, False)
    beside = replace(problem, interference=Interference(1, slowdown=Fraction(1)))
    assert present(advise(CARAMEL, beside, solve(beside), NEVER)).contention


@pytest.mark.parametrize(
    ("sending", "least"),
    [(None, Fraction(103, 100)), (15, Fraction(103, 100)), (52, Fraction(43, 40))],
)
def test_more_gain_is_asked_for_where_sending_takes_computation(
    sending: int | None, least: Fraction
) -> None:
    """Of the share of DDP's step in which sending takes processor time, 15 %."""
    found = Advice(100, None, 104, None, sending)
    assert (found.least_gain, found.keep_ddp) == (least, sending == 52)


def test_all_gradients_are_sent() -> None:
    problem = Problem(chain((9, 1, 7), (9, 1, 5)), AffineCost(0, Fraction(1)))
    beside = replace(problem, interference=Interference(3, Fraction(1, 2), Fraction(2), 4))
    assert present(advise(CARAMEL, beside, solve(beside), NEVER)).sending_ns == 6
    assert present(advise(CARAMEL, problem, solve(problem), NEVER)).sending_ns is None


@settings(max_examples=60)
@given(problems(), outlooks())
def test_no_plan_of_whole_parameters_is_better(problem: Problem, outlook: ScenarioSet) -> None:
    usual = solved(problem)
    _, prospect = robust(problem, outlook)
    others = [CARAMEL.perturb(problem, scenario) for scenario, _ in outlook.scenarios]
    times = [evaluate(other, usual.plan).iteration_ns for other in others]
    assert prospect.usual_value == counted(outlook, times)
    for groups in whole_plans(problem.windows):
        if price(problem.windows, problem.cost, groups) <= MAX_LOSS * usual.iteration_ns:
            value = counted(outlook, [price(one.windows, one.cost, groups) for one in others])
            assert prospect.bound <= prospect.value <= value


@settings(max_examples=20)
@given(problems(), outlooks(), st.integers(0, 30))
def test_beside_computation_it_holds_too(
    problem: Problem, outlook: ScenarioSet, startup: int
) -> None:
    disturbed = replace(problem, interference=Interference(startup, slowdown=Fraction(3, 2)))
    _, prospect = robust(disturbed, outlook)
    assert prospect.bound <= prospect.value <= prospect.usual_value


def test_little_is_given_away_whatever_scenarios_ask_for() -> None:
    """With start-ups as long as that one transfer is best; as they are, two are much shorter."""
    problem = Problem(chain((100, 100, 50), (100, 100, 50)), AffineCost(1, Fraction(1)))
    dear = Scenario(startup=Fraction(1000))
    own = solved(CARAMEL.perturb(problem, dear)).plan
    found, prospect = robust(problem, ScenarioSet(((dear, Fraction(1)),)))
    most = MAX_LOSS * prospect.usual_ns
    assert evaluate(problem, own).iteration_ns > most >= found.iteration_ns


def test_orders_nobody_enforces_become_one() -> None:
    problem = small()
    assert not problem.fixed_order
    found, _ = robust(problem, ScenarioSet(((SCENARIOS[0], Fraction(1)),)))
    assert len(found.plan.backward_orders) == 1
