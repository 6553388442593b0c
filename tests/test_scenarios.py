"""Scenarios: what they make of graphs and costs, and that they are what they say."""

from dataclasses import replace
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.costs import AffineCost, DepthCost, TableCost, scaled_cost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.solving.scenarios import SCENARIOS, Part, Scenario, ScenarioSet, measured, scaled_graph
from tests.caramel.graph_strategies import graphs
from tests.outlooks import counted, outlooks
from tests.strategies import affine_costs, table_costs

factors = st.fractions(Fraction(1, 4), 4, max_denominator=8)
scenarios = st.builds(Scenario, factors, factors, factors, factors)


def test_each_of_them_changes_one_number() -> None:
    usual = Scenario()
    names = ("computation", "startup", "bandwidth", "late")
    for scenario in SCENARIOS:
        changed = [name for name in names if getattr(scenario, name) != getattr(usual, name)]
        assert len(changed) == 1
    assert len(set(SCENARIOS)) == len(SCENARIOS) == 7


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("computation", 0),
        ("startup", -1),
        ("bandwidth", 0),
        ("late", "x"),
        ("spread", -1),
        ("part", "end"),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Scenario(**{field: value})  # type: ignore[arg-type]
    assert refused.value.path == field


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


def test_depths_are_changed_one_by_one() -> None:
    line, table = AffineCost(10, Fraction(1)), TableCost(((0, 20), (10, 25)))
    assert scaled_cost(DepthCost(((1, line), (4, table))), startup=2, rate=2) == DepthCost(
        ((1, AffineCost(20, Fraction(2))), (4, TableCost(((0, 40), (10, 50)))))
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


@pytest.mark.parametrize(
    ("scenarios", "percentile", "path"),
    [
        ((), None, "scenarios"),
        (((Scenario(), 0),), None, "scenarios[0].weight"),
        (((Scenario(), 1),), 0, "percentile"),
        (((Scenario(), 1),), 101, "percentile"),
    ],
)
def test_an_outlook_that_cannot_be_is_refused(
    scenarios: object, percentile: object, path: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        ScenarioSet(scenarios, percentile)  # type: ignore[arg-type]
    assert refused.value.path == path
