"""Scenarios, and regret, advice and plans for them, mostly of a family that is made up."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families import ibatch
from planner.model.costs import AffineCost, DepthCost, TableCost, scaled_cost
from planner.model.graphs import Graph, Op
from planner.solving.advice import advise
from planner.solving.bucketing import DDP_BUCKET_MB, DDP_LIMITS
from planner.solving.deadline import NEVER, Deadline
from planner.solving.methods import Method, Outcome
from planner.solving.result import Infeasibility, Result
from planner.solving.scenarios import (
    SCENARIOS,
    SLOWER,
    Part,
    Scenario,
    ScenarioSet,
    measured,
    scaled_graph,
)
from planner.solving.what_if import break_even, regrets, robust_plan
from tests.caramel.graph_strategies import graphs
from tests.outlooks import counted, outlooks
from tests.perturbed import CASES
from tests.present import present
from tests.strategies import table_costs
from tests.words import Words

factors = st.fractions(Fraction(1, 4), 4, max_denominator=8)
scenarios = st.builds(Scenario, factors, factors, factors, factors)


@given(table_costs(), scenarios)
def test_a_table_scales_what_exceeds_its_smallest_transfer(
    cost: TableCost, scenario: Scenario
) -> None:
    other = scaled_cost(cost, startup=scenario.startup, rate=1 / scenario.bandwidth)
    assert isinstance(other, TableCost)
    least = cost.points[0][1]
    for (size, time), (same, was) in zip(other.points, cost.points, strict=True):
        assert size == same
        if was >= least:
            exact = least * scenario.startup + (was - least) / scenario.bandwidth
            assert abs(time - exact) <= 0.5
    assert scaled_cost(cost) == cost


def test_depths_are_changed_one_by_one_and_a_charge_raises_start_ups() -> None:
    line, table = AffineCost(10, Fraction(1)), TableCost(((0, 20), (10, 25)))
    both = DepthCost(((1, line), (4, table)))
    assert scaled_cost(both, startup=2, rate=2) == DepthCost(
        ((1, AffineCost(20, Fraction(2))), (4, TableCost(((0, 40), (10, 50)))))
    )
    assert scaled_cost(both, startup=2, rate=2, extra_ns=5, rounding=ceil) == DepthCost(
        ((1, AffineCost(25, Fraction(2))), (4, TableCost(((0, 45), (10, 55)))))
    )


def third_of(graph: Graph, op: Op) -> str:
    """In which third of the backward pass, by time, the middle of an op lies."""
    order = [graph.ops[index] for index in graph.topological if graph.ops[index].phase != "forward"]
    whole = sum(one.duration_ns for one in order)
    twice = 2 * sum(one.duration_ns for one in order[: order.index(op)]) + op.duration_ns
    return ("first", "middle", "last")[min(2, whole and 3 * twice // (2 * whole))]


@given(graphs(), scenarios, st.sampled_from(get_args(Part)), st.integers(0, 3), st.data())
def test_ops_take_as_long_as_the_scenario_says(
    graph: Graph, scenario: Scenario, part: Part, times: int, data: st.DataObject
) -> None:
    """Those of a part are late by their spreads."""
    spreads = st.none() | st.integers(0, 50)
    ops = tuple(replace(op, spread_ns=data.draw(spreads)) for op in graph.ops)
    graph = Graph(ops, graph.parameters)
    other = scaled_graph(graph, replace(scenario, spread=Fraction(times), part=part))
    assert other.parameters == graph.parameters
    for op, was in zip(other.ops, graph.ops, strict=True):
        inside = part in ("all", op.phase)
        if op.phase == "backward":
            inside |= part == third_of(graph, was)
        behind = 1 + scenario.late if op.phase == "backward" else 1
        exact = was.duration_ns + inside * times * (was.spread_ns or 0)
        assert abs(op.duration_ns - exact * scenario.computation * behind) <= 0.5
        assert replace(op, duration_ns=was.duration_ns) == was


@given(outlooks(), st.data())
def test_what_counts_of_times(outlook: ScenarioSet, data: st.DataObject) -> None:
    count = len(outlook.scenarios)
    times = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    assert outlook.of(times) == counted(outlook, times)
    longer = [time + data.draw(st.integers(0, 2)) for time in times]
    assert outlook.of(longer) >= outlook.of(times)
    assert measured().of([0, *range(1, 7)]) == Fraction(21, 10)  # four times as often as it is
    assert measured(Fraction(90)).of([*range(7)]) == 5


class Disturbed(Words):
    """The numbers of a scenario change nothing."""

    def perturb(self, problem: str, scenario: Scenario) -> str:
        return problem


def said(
    kept: int, auto: Outcome[str], deadline: Deadline = NEVER, **rules: int
) -> list[int | Fraction | None]:
    """Return the text about a plan that costs `kept`; the plan of `auto` costs 5."""

    def method(_: str, given: Deadline) -> Outcome[str]:
        assert (given.remaining_s is None) == (deadline is NEVER)
        return auto

    def rule(name: str) -> Method[str, str]:
        return lambda _, __: Outcome(name)

    methods = {"auto": method, **{name: rule(name) for name in rules}}
    family = Disturbed({"the plan": kept, "another": 5, "free": 0, **rules}, methods)
    rows = regrets(family, "a problem", "the plan", deadline)
    assert [row.scenario for row in rows] == list(SCENARIOS)
    row = rows[0]
    assert (row.ddp_ns, row.layers_ns) == (rules.get("ddp"), rules.get("layer_by_layer"))
    return [row.best_ns, row.bound_ns, row.at_least, row.at_most]


def test_the_best_is_the_best_of_all_and_what_is_not_known_is_not_said() -> None:
    assert said(7, Outcome("another", 4)) == [5, 4, Fraction(7, 5), Fraction(7, 4)]
    assert said(7, Outcome("another", 3), ddp=4) == [4, 3, Fraction(7, 4), Fraction(7, 3)]
    assert said(7, Outcome("another", 3), ddp=6, layer_by_layer=4)[:2] == [4, 3]
    assert said(3, Outcome("another", 4), ddp=4) == [3, 3, 1, 1]  # a bound of another op order
    assert said(7, Outcome(None, infeasibility=Infeasibility("", ()))) == [7, None, 1, None]
    assert said(0, Outcome("free", 0)) == [0, 0, 1, 1]
    assert said(7, Outcome("another", 4), Deadline(100))[0] == 5  # each has a share of the time


@pytest.mark.parametrize(
    ("prices", "best", "size", "keep"),
    [
        ([102, *[None] * 6], 102, None, True),
        ([103, *[None] * 6], 103, None, False),
        ([120, None, 110, 105, 105, 109, None], 105, DDP_BUCKET_MB[2], False),
        ([90, 90, 90, 91, 92, 93, 94], 90, None, True),
    ],
)
def test_ddp_has_the_best_of_its_bucket_sizes(
    prices: list[int | None], best: int, size: int | None, keep: bool
) -> None:
    limits = [DDP_LIMITS, *((size * 2**20, size * 2**20) for size in DDP_BUCKET_MB)]
    priced = dict(zip(limits, prices, strict=True))

    class Bucketed(Words):
        def ddp_price(self, _: str, limits: tuple[int, int], __: Deadline) -> int | None:
            return priced[limits]

    result: Result[str, int] = Result("auto", "a plan", 100, 80, 0.0)
    found = present(advise(Bucketed({}, {}), "a problem", result, NEVER))
    assert (found.ddp_ns, found.bucket_mb, found.keep_ddp) == (best, size, keep)
    assert found.at_most == Fraction(best, 80)
    priced = dict.fromkeys(limits)
    assert advise(Bucketed({}, {}), "a problem", result, NEVER) is None


def test_a_family_s_candidates_follow_from_every_plan_that_is_made() -> None:
    """The usual one, those of the scenarios, and of longer times."""
    scenario = SCENARIOS[0]
    names = {Scenario(): "a problem", scenario: "of it", **dict.fromkeys(SLOWER, "longer")}
    assert len(names) == 2 + len(SLOWER)
    seen: list[str] = []

    class Longer(Words):
        def perturb(self, problem: str, scenario: Scenario) -> str:
            return names[scenario]

        def candidates(self, problem: str, plans: Sequence[str], _: Deadline) -> Iterator[str]:
            seen.extend(plans)
            yield from (f"{plan}!" for plan in plans)

    def auto(problem: str, _: Deadline) -> Outcome[str]:
        return Outcome(f"for {problem}", 0)

    plans = ["for a problem", "for of it", "for longer"]
    family = Longer({**dict.fromkeys(plans, 100), "for longer!": 99}, {"auto": auto})
    result, _ = robust_plan(family, "a problem", ScenarioSet(((scenario, Fraction(1)),)), NEVER)
    assert list(dict.fromkeys(seen)) == plans
    assert result.plan == "for longer!"


FAMILY, PROBLEM = ibatch.IBATCH, CASES["ibatch"].example
ONE, APART = PROBLEM.plan((0, 4)), PROBLEM.plan((0, 1, 2, 3, 4))

Plans = tuple[list[tuple[int, ibatch.Plan]], int]
"""New plans and what they cost, and a bound."""


def test_known_plans_and_new_ones_are_priced_in_every_scenario() -> None:
    asked = []

    def again(other: ibatch.Problem, least: int, _: Deadline) -> Plans:
        asked.append(least)
        return [(FAMILY.price(other, APART), APART)], 7

    factors = [Scenario(startup=Fraction(factor)) for factor in (1, 10)]
    points = regrets(FAMILY, PROBLEM, ONE, NEVER, scenarios=factors, again=again, rules=())
    assert [point.best for point in points] == [APART, ONE]
    assert [point.bound_ns for point in points] == [7, 7]
    assert [point.ddp_ns for point in points] == [None, None]
    assert asked == [point.plan_ns for point in points]
    (point,) = regrets(
        FAMILY, PROBLEM, APART, NEVER, scenarios=factors[1:], known=[ONE], again=again, rules=()
    )
    assert point.best == ONE
    assert point.best_ns < point.plan_ns


def test_a_bound_is_never_above_the_best_plan() -> None:
    """Not even one of the new plans only, if a known plan is better."""
    never = Scenario()
    points = regrets(
        FAMILY, PROBLEM, ONE, NEVER, scenarios=[never], again=lambda *_: ([], 10**9), rules=()
    )
    assert [point.bound_ns for point in points] == [FAMILY.price(PROBLEM, ONE)]


FACTORS = [None, Fraction(5, 2), Fraction(3), Fraction(7, 2), Fraction(5), Fraction(2000)]


@pytest.mark.parametrize("beyond", FACTORS)
@pytest.mark.parametrize("below", [factor and 1 / factor for factor in FACTORS])
def test_the_break_even_factor_is_the_nearest(
    beyond: Fraction | None, below: Fraction | None
) -> None:
    def better(factor: Fraction) -> bool:
        above = beyond is not None and factor >= beyond
        return above or (below is not None and factor <= below)

    assert break_even(better, Deadline(0)) is None
    away = [max(factor, 1 / factor) for factor in (beyond, below) if factor]
    nearest = min((factor for factor in away if factor < 2000), default=None)
    found = break_even(better, NEVER)
    assert (found is None) == (nearest is None)
    if found is not None and nearest is not None:
        assert better(found)
        assert abs(max(found, 1 / found) / nearest - 1) < Fraction(1, 1000)
