"""Plans for several scenarios: against all plans of few parameters, and as they say themselves."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner.caramel.outlook import solve_for
from planner.caramel.scenarios import under

from planner.caramel import Plan, Problem, evaluate, solve
from planner.caramel.evaluation import check
from planner.costs import AffineCost
from planner.errors import InvalidInputError
from planner.graphs import Graph, Op, Parameter
from planner.interference import Interference
from planner.scenarios import MOST, SCENARIOS, Outlook, Scenario
from planner.validation import MAX_VALUE
from tests.caramel.exact_oracles import best_split, price, whole_plans
from tests.caramel.test_scenarios import problems, small

weights = st.integers(1, 5).map(Fraction)
percentiles = st.none() | st.sampled_from([Fraction(1), Fraction(50), Fraction(90), Fraction(100)])


@st.composite
def outlooks(draw: st.DrawFn) -> Outlook:
    chosen = draw(st.lists(st.sampled_from((Scenario(), *SCENARIOS)), min_size=1, max_size=4))
    return Outlook(tuple((one, draw(weights)) for one in chosen), draw(percentiles))


def counted(outlook: Outlook, times: Sequence[int]) -> Fraction:
    """What counts of some times, with every scenario as often as it weighs."""
    often = [
        time
        for time, (_, weight) in zip(times, outlook.scenarios, strict=True)
        for _ in range(int(weight))
    ]
    if outlook.percentile is None:
        return Fraction(sum(often), len(often))
    return Fraction(
        min(
            time
            for time in often
            if 100 * sum(other <= time for other in often) >= outlook.percentile * len(often)
        )
    )


@given(outlooks(), st.data())
def test_what_counts_of_times(outlook: Outlook, data: st.DataObject) -> None:
    count = len(outlook.scenarios)
    times = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    assert outlook.of(times) == counted(outlook, times)
    longer = [time + data.draw(st.integers(0, 2)) for time in times]
    assert outlook.of(longer) >= outlook.of(times)


@settings(max_examples=60)
@given(problems(), outlooks())
def test_no_plan_of_whole_parameters_is_better(problem: Problem, outlook: Outlook) -> None:
    usual = solve(problem)
    result, prospect = solve_for(problem, outlook)
    plan = result.plan
    assert plan is not None
    assert usual.plan is not None
    assert usual.objective_ns is not None
    check(problem, plan)
    others = [under(problem, scenario) for scenario, _ in outlook.scenarios]

    def of(one: Plan) -> Fraction:
        return counted(outlook, [evaluate(other, one).iteration_ns for other in others])

    assert prospect.value == of(plan)
    assert prospect.usual_value == of(usual.plan)
    assert prospect.usual_ns == usual.objective_ns
    assert prospect.bound <= prospect.value <= prospect.usual_value
    assert result.objective_ns is not None
    assert result.objective_ns <= MOST * usual.objective_ns
    assert result.lower_bound_ns == usual.lower_bound_ns
    for groups in whole_plans(problem.windows):
        if price(problem.windows, problem.cost, groups) > MOST * usual.objective_ns:
            continue
        value = counted(outlook, [price(one.windows, one.cost, groups) for one in others])
        assert prospect.bound <= prospect.value <= value


@pytest.mark.slow
@settings(max_examples=30)
@given(problems(st.integers(1, 4), 2), outlooks())
def test_the_bound_is_one_of_the_scenarios_by_themselves(
    problem: Problem, outlook: Outlook
) -> None:
    _, prospect = solve_for(problem, outlook)
    others = [under(problem, scenario) for scenario, _ in outlook.scenarios]
    assert prospect.bound <= counted(outlook, [best_split(o.windows, o.cost) for o in others])


@given(problems())
def test_one_scenario_that_changes_nothing_changes_nothing(problem: Problem) -> None:
    usual = solve(problem)
    result, prospect = solve_for(problem, Outlook(((Scenario(), Fraction(3)),)))
    assert result.plan == usual.plan
    assert prospect.value == prospect.usual_value == usual.objective_ns
    assert prospect.bound == usual.lower_bound_ns


@given(problems(), outlooks())
def test_the_same_request_has_the_same_answer(problem: Problem, outlook: Outlook) -> None:
    (first, prospect), (second, again) = solve_for(problem, outlook), solve_for(problem, outlook)
    assert (first.plan, prospect) == (second.plan, again)


@settings(max_examples=20)
@given(problems(), outlooks(), st.integers(0, 30))
def test_beside_computation_it_holds_too(problem: Problem, outlook: Outlook, startup: int) -> None:
    disturbed = replace(problem, interference=Interference(startup, slowdown=Fraction(3, 2)))
    result, prospect = solve_for(disturbed, outlook)
    assert result.plan is not None
    assert prospect.bound <= prospect.value <= prospect.usual_value


def test_little_is_given_away_whatever_scenarios_ask_for() -> None:
    """With start-ups as long as that one transfer is best; as they are, two are much shorter."""
    ops = (
        Op("f1", 100, "forward"),
        Op("f2", 100, "forward", ("f1",)),
        Op("b2", 100, "backward", ("f2",)),
        Op("b1", 100, "backward", ("b2", "f1")),
    )
    parameters = (Parameter("w1", 50, ("b1",), ("f1",)), Parameter("w2", 50, ("b2",), ("f2",)))
    problem = Problem(Graph(ops, parameters), AffineCost(1, Fraction(1)))
    dear = Outlook(((Scenario(startup=Fraction(1000)), Fraction(1)),))
    own = solve(under(problem, dear.scenarios[0][0])).plan
    assert own is not None
    result, prospect = solve_for(problem, dear)
    assert result.objective_ns is not None
    assert evaluate(problem, own).iteration_ns > MOST * prospect.usual_ns >= result.objective_ns


def test_orders_nobody_enforces_become_one() -> None:
    problem = small()
    assert not problem.fixed_order
    result, _ = solve_for(problem, Outlook(((SCENARIOS[0], Fraction(1)),)))
    assert result.plan is not None
    assert len(result.plan.backward_orders) == 1


def test_a_time_limit_leaves_a_plan() -> None:
    result, prospect = solve_for(small(), Outlook(((SCENARIOS[0], Fraction(1)),)), time_limit=1e-9)
    assert result.plan is not None
    assert prospect.bound <= prospect.value


def test_a_scenario_whose_numbers_are_too_large_is_named() -> None:
    problem = small(duration=1, startup=MAX_VALUE // 8 * 3)
    outlook = Outlook(((Scenario(), Fraction(1)), (Scenario(startup=Fraction(2)), Fraction(1))))
    with pytest.raises(InvalidInputError) as refused:
        solve_for(problem, outlook)
    assert refused.value.path.startswith("scenarios[1]")


@pytest.mark.parametrize(
    ("scenarios", "percentile", "path"),
    [
        ((), None, "scenarios"),
        (((Scenario(), 0),), None, "scenarios[0].weight"),
        (((Scenario(), 1),), 0, "percentile"),
        (((Scenario(), 1),), 101, "percentile"),
    ],
)
def test_what_cannot_be_is_refused(scenarios: object, percentile: object, path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Outlook(scenarios, percentile)  # type: ignore[arg-type]
    assert refused.value.path == path
