"""Plans of whole iterations for several scenarios, priced event by event."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner.iteration.outlook import solve_for
from planner.iteration.scenarios import under

from planner import iteration
from planner.errors import NotApplicableError
from planner.graphs import Graph
from planner.iteration import Problem
from planner.scenarios import MOST, SCENARIOS, Outlook, Scenario, measured
from tests.iteration.iteration_strategies import problems
from tests.iteration.pricing import lasts

METHODS = ("joint", "ddp", "layer_by_layer", "ps", "bytescheduler", "caramel", "ibatch")


@st.composite
def spread_problems(draw: st.DrawFn, *, one_order: bool = False) -> Problem:
    problem = draw(problems(max_parameters=3, one_order=one_order))
    ops = (replace(op, spread_ns=draw(st.integers(0, 30))) for op in problem.graph.ops)
    return replace(problem, graph=Graph(tuple(ops), problem.graph.parameters))


def counted(outlook: Outlook, times: Sequence[int]) -> Fraction:
    """The mean, or the least time that is not exceeded in 90 of 100."""
    pairs = sorted(zip(times, (weight for _, weight in outlook.scenarios), strict=True))
    whole = sum(weight for _, weight in pairs)
    if outlook.percentile is None:
        return sum((time * weight for time, weight in pairs), Fraction(0)) / whole
    return Fraction(
        next(
            time
            for time, _ in pairs
            if 10 * sum(weight for other, weight in pairs if other <= time) >= 9 * whole
        )
    )


outlooks = st.sampled_from(
    [
        measured(),
        measured(Fraction(90)),
        Outlook(tuple((one, Fraction(1)) for one in (Scenario(), *SCENARIOS))),
    ]
)


@pytest.mark.slow
@settings(max_examples=40)
@given(spread_problems(), outlooks)
def test_it_costs_what_it_says(problem: Problem, outlook: Outlook) -> None:
    usual = iteration.solve(problem)
    result, prospect = solve_for(problem, outlook)
    if usual.plan is None:
        assert result.plan is None
        assert prospect is None
        return
    assert result.plan is not None
    assert result.objective_ns is not None
    assert prospect is not None
    others = [under(problem, scenario) for scenario, _ in outlook.scenarios]
    assert prospect.value == counted(outlook, [lasts(one, result.plan) for one in others])
    assert prospect.usual_value == counted(outlook, [lasts(one, usual.plan) for one in others])
    assert prospect.usual_ns == usual.objective_ns
    assert prospect.bound <= prospect.value <= prospect.usual_value
    assert result.objective_ns == lasts(problem, result.plan) <= MOST * prospect.usual_ns
    assert result.lower_bound_ns is not None
    assert result.lower_bound_ns <= result.objective_ns
    again, repeated = solve_for(problem, outlook)
    assert (again.plan, repeated) == (result.plan, prospect)


@pytest.mark.slow
@settings(max_examples=30)
@given(spread_problems(one_order=True), outlooks)
def test_no_plan_is_below_the_bound(problem: Problem, outlook: Outlook) -> None:
    _, prospect = solve_for(problem, outlook)
    if prospect is None:
        return
    others = [under(problem, scenario) for scenario, _ in outlook.scenarios]
    best = [lasts(one, plan) for one in others if (plan := iteration.solve(one).plan) is not None]
    assert prospect.bound <= counted(outlook, best)
    for method in METHODS:
        try:
            plan = iteration.solve(problem, method=method).plan
        except NotApplicableError:
            continue
        if plan is not None:
            assert prospect.bound <= counted(outlook, [lasts(one, plan) for one in others])
