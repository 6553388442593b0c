"""Scenarios, and regret, advice and plans for them, mostly of a family that is made up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.families import ibatch
from planner.model.costs import AffineCost, DepthCost, TableCost, scaled_cost
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
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
from planner.solving.what_if import Regret, break_even, regrets, robust_plan
from tests.caramel.graph_strategies import graphs
from tests.outlooks import counted, outlooks
from tests.perturbed import CASES
from tests.strategies import affine_costs, table_costs
from tests.words import Words

factors = st.fractions(Fraction(1, 4), 4, max_denominator=8)
scenarios = st.builds(Scenario, factors, factors, factors, factors)


def test_each_of_them_changes_one_number() -> None:
    usual = Scenario()
    names = ("computation", "startup", "bandwidth", "late")
    for scenario in SCENARIOS:
        changed = [name for name in names if getattr(scenario, name) != getattr(usual, name)]
        assert len(changed) == 1
    assert len(set(SCENARIOS)) == len(SCENARIOS) == 7


@given(graphs(), scenarios)
def test_ops_take_as_long_as_the_scenario_says(graph: Graph, scenario: Scenario) -> None:
    other = scaled_graph(graph, scenario)
    assert other.parameters == graph.parameters
    for op, was in zip(other.ops, graph.ops, strict=True):
        assert (op.name, op.phase, op.after) == (was.name, was.phase, was.after)
        behind = 1 + scenario.late if op.phase == "backward" else 1
        assert abs(op.duration_ns - was.duration_ns * scenario.computation * behind) <= 0.5
    assert scaled_graph(graph, Scenario()) == graph


@given(affine_costs(), scenarios, st.integers(1, 1000))
def test_a_line_keeps_both_its_parts(cost: AffineCost, scenario: Scenario, size: int) -> None:
    other = scaled_cost(cost, startup=scenario.startup, rate=1 / scenario.bandwidth)
    startup, rate = Fraction(cost.startup_ns), Fraction(cost.ns_per_byte)
    exact = startup * scenario.startup + rate * size / scenario.bandwidth
    assert abs(other.cost_ns(size) - exact) <= 1.5
    assert scaled_cost(cost) == cost


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


@st.composite
def spread_graphs(draw: st.DrawFn) -> Graph:
    graph = draw(graphs())
    spreads = st.none() | st.integers(0, 50)
    return Graph(tuple(replace(op, spread_ns=draw(spreads)) for op in graph.ops), graph.parameters)


def third_of(graph: Graph, name: str) -> str:
    """In which third of the backward pass, by time, the middle of an op lies."""
    order = [graph.ops[index] for index in graph.topological if graph.ops[index].phase != "forward"]
    whole = sum(op.duration_ns for op in order)
    before = sum(op.duration_ns for op in order[: [op.name for op in order].index(name)])
    middle = before + Fraction(graph.ops[graph.position[name]].duration_ns, 2)
    if middle < Fraction(whole, 3) or not whole:
        return "first"
    return "middle" if middle < Fraction(2 * whole, 3) else "last"


@given(spread_graphs(), st.sampled_from(get_args(Part)), st.integers(0, 3))
def test_ops_of_a_part_are_late_by_their_spreads(graph: Graph, part: Part, times: int) -> None:
    other = scaled_graph(graph, Scenario(spread=Fraction(times), part=part))
    for op, was in zip(other.ops, graph.ops, strict=True):
        inside = part in ("all", op.phase)
        if op.phase == "backward":
            inside |= part == third_of(graph, op.name)
        assert op.duration_ns == was.duration_ns + inside * times * (was.spread_ns or 0)
        assert replace(op, duration_ns=was.duration_ns) == was


@given(st.integers(0, 99), st.lists(st.integers(100, 999), min_size=6, max_size=6))
def test_four_tenths_are_as_measured(usual: int, late: list[int]) -> None:
    times = [usual, *late]
    assert measured().of(times) == Fraction(4 * usual + sum(late), 10)
    assert measured(Fraction(90)).of(times) == sorted(late)[-2]
    assert measured(Fraction(40)).of(times) == usual


@given(outlooks(), st.data())
def test_what_counts_of_times(outlook: ScenarioSet, data: st.DataObject) -> None:
    count = len(outlook.scenarios)
    times = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    assert outlook.of(times) == counted(outlook, times)
    longer = [time + data.draw(st.integers(0, 2)) for time in times]
    assert outlook.of(longer) >= outlook.of(times)


# ---
# A family that is made up

times = st.integers(1, 1000)


def method(name: str, cost: int | None, bound: int | None, *, limited: bool) -> Method[str, str]:
    def run(_: str, deadline: Deadline) -> Outcome[str]:
        assert limited == (deadline.remaining_s is not None)
        if cost is None:
            return Outcome(None, infeasibility=Infeasibility("", ()))
        return Outcome(name, bound)

    return run


def not_applicable(_: str, __: Deadline) -> Outcome[str]:
    raise NotApplicableError("method", "does not apply")


def rows(
    kept: int,
    known: Mapping[str, tuple[int | None, int | None]],
    deadline: Deadline = NEVER,
    refused: Scenario | None = None,
) -> tuple[Regret[str], ...]:
    """What is said of a plan that costs `kept`, where methods cost and prove what is `known`."""

    class Disturbed(Words):
        def perturb(self, problem: str, scenario: Scenario) -> str:
            if scenario == refused:
                raise InvalidInputError("network", "too large")
            return problem

    limited = deadline is not NEVER
    methods = {name: method(name, *both, limited=limited) for name, both in known.items()}
    costs = {name: cost for name, (cost, _) in known.items() if cost is not None}
    family = Disturbed({"the plan": kept, **costs}, {"ddp": not_applicable, **methods})
    return regrets(family, "a problem", "the plan", deadline)


@given(times, times, times, times, times)
def test_the_best_is_the_best_of_all_and_no_bound_is_above_it(
    kept: int, auto: int, bound: int, ddp: int, layers: int
) -> None:
    """A bound may be one of another op order than the plan's."""
    bound = min(bound, auto)
    found = rows(kept, {"auto": (auto, bound), "ddp": (ddp, None), "layer_by_layer": (layers, 1)})
    assert [row.scenario for row in found] == list(SCENARIOS)
    best = min(kept, auto, ddp, layers)
    row = found[0]
    assert (row.plan_ns, row.best_ns, row.bound_ns) == (kept, best, min(bound, best))
    assert (row.ddp_ns, row.layers_ns) == (ddp, layers)
    assert row.at_least == Fraction(kept, best)
    assert row.at_most == Fraction(kept, min(bound, best))


def test_what_is_not_known_is_not_said() -> None:
    (row, *_) = rows(7, {"auto": (None, None)})
    assert (row.best_ns, row.bound_ns, row.ddp_ns, row.layers_ns) == (7, None, None, None)
    assert row.at_least == 1
    assert row.at_most is None
    (row, *_) = rows(0, {"auto": (0, 0)})
    assert row.at_least == row.at_most == 1


@pytest.mark.parametrize("refused", SCENARIOS)
def test_a_scenario_that_cannot_be_is_left_out(refused: Scenario) -> None:
    found = rows(7, {"auto": (5, 4)}, refused=refused)
    assert [row.scenario for row in found] == [
        scenario for scenario in SCENARIOS if scenario != refused
    ]


def test_each_scenario_has_a_share_of_the_time() -> None:
    assert len(rows(7, {"auto": (5, 4)}, Deadline(100))) == len(SCENARIOS)


@given(times, st.none() | times, st.lists(st.none() | times, min_size=7, max_size=7))
@example(100, None, [102, *[None] * 6])
@example(100, None, [103, *[None] * 6])
def test_ddp_has_the_best_of_its_bucket_sizes(
    plan: int, bound: int | None, prices: list[int | None]
) -> None:
    limits = [DDP_LIMITS, *((size * 2**20, size * 2**20) for size in DDP_BUCKET_MB)]
    priced = dict(zip(limits, prices, strict=True))

    class Bucketed(Words):
        def ddp_price(self, _: str, limits: tuple[int, int], __: Deadline) -> int | None:
            return priced[limits]

    bound = None if bound is None else min(bound, plan)
    result: Result[str, int] = Result("auto", "a plan", plan, bound, 0.0)
    found = advise(Bucketed({}, {}), "a problem", result, NEVER)
    known = [price for price in prices if price is not None]
    if not known:
        assert found is None
        return
    assert found is not None
    assert found.ddp_ns == min(known)
    assert [None, *DDP_BUCKET_MB][prices.index(min(known))] == found.bucket_mb
    assert found.keep_ddp == (100 * min(known) < 103 * plan)
    assert found.at_most == (None if bound is None else Fraction(min(known), bound))


def test_a_family_s_candidates_follow_from_every_plan_that_is_made() -> None:
    """The usual one, those of the scenarios, and of longer times."""
    scenario = SCENARIOS[0]
    names = {Scenario(): "a problem", scenario: "of it", **dict.fromkeys(SLOWER, "longer")}
    assert len(names) == 2 + len(SLOWER)
    seen: list[str] = []

    class Disturbed(Words):
        def perturb(self, problem: str, scenario: Scenario) -> str:
            return names[scenario]

        def candidates(self, problem: str, plans: Sequence[str], _: Deadline) -> Iterator[str]:
            seen.extend(plans)
            yield from (f"{plan}!" for plan in plans)

    def auto(problem: str, _: Deadline) -> Outcome[str]:
        return Outcome(f"for {problem}", 0)

    plans = ["for a problem", "for of it", "for longer"]
    family = Disturbed({**dict.fromkeys(plans, 100), "for longer!": 99}, {"auto": auto})
    result, _ = robust_plan(family, "a problem", ScenarioSet(((scenario, Fraction(1)),)), NEVER)
    assert list(dict.fromkeys(seen)) == plans
    assert result.plan == "for longer!"


# ---
# Other numbers of a problem of ibatch

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

    def again(*_: object) -> Plans:
        return [], 10**9

    points = regrets(FAMILY, PROBLEM, ONE, NEVER, scenarios=[Scenario()], again=again, rules=())
    assert [point.bound_ns for point in points] == [FAMILY.price(PROBLEM, ONE)]


@pytest.mark.parametrize(
    ("beyond", "below", "found"),
    [
        (Fraction(3), None, 3),
        (None, Fraction(1, 3), Fraction(1, 3)),
        (Fraction(5), Fraction(1, 3), Fraction(1, 3)),
        (Fraction(3), Fraction(1, 5), 3),
        (Fraction(5, 2), Fraction(1, 3), Fraction(5, 2)),
        (Fraction(7, 2), Fraction(1, 3), Fraction(1, 3)),
        (Fraction(2000), None, None),
        (None, None, None),
    ],
)
def test_the_break_even_factor_is_the_nearest(
    beyond: Fraction | None, below: Fraction | None, found: Fraction | None
) -> None:
    def better(factor: Fraction) -> bool:
        above = beyond is not None and factor >= beyond
        return above or (below is not None and factor <= below)

    factor = break_even(better, NEVER)
    assert (factor is None) == (found is None)
    if factor is None or found is None:
        return
    assert better(factor)
    assert abs(factor / found - 1) < Fraction(1, 1000)
    assert break_even(better, Deadline(0)) is None
