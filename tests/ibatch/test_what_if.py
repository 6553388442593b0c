"""Regret of batches, and batches for several scenarios: against all batches of few layers."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families import ibatch
from planner.families.ibatch import IBATCH, Problem
from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE
from planner.solving.deadline import NEVER
from planner.solving.scenarios import MAX_LOSS, SCENARIOS, Scenario, ScenarioSet, measured
from planner.solving.what_if import regrets, robust_plan
from tests.oracles import all_boundaries, boundaries_of, brute_force, objective
from tests.strategies import problems

percentiles = st.none() | st.sampled_from([Fraction(50), Fraction(90), Fraction(100)])


@st.composite
def spread_problems(draw: st.DrawFn, most: int = 6) -> ibatch.Problem:
    problem = draw(problems(max_layers=most, objective="makespan"))
    count = problem.layers
    return replace(
        problem, spread_ns=draw(st.lists(st.integers(0, 60), min_size=count, max_size=count))
    )


def takes(problem: ibatch.Problem, plan: ibatch.Plan, scenario: Scenario) -> int:
    """What batches last in a scenario."""
    lasts = objective(IBATCH.perturb(problem, scenario), boundaries_of(problem, plan))
    assert lasts is not None
    return lasts


def large() -> ibatch.Problem:
    """One whose start-up may not be twice as long."""
    return ibatch.Problem(compute_ns=(1,), startup_ns=MAX_VALUE // 8 * 5, transfer_ns=(1,))


def late(problem: ibatch.Problem, part: str) -> ibatch.Problem:
    """The problem with all of a part late by its spread, worked out by hand."""
    count, push = problem.layers, problem.direction == "push"
    order = range(count)[::-1] if push else range(count)
    times = list(problem.compute_ns)
    whole, before = sum(times), 0
    for layer in order:
        middle = Fraction(2 * before + times[layer], 2)
        before += problem.compute_ns[layer]
        third = "first" if 3 * middle < whole or not whole else "middle"
        third = "last" if whole and 3 * middle >= 2 * whole else third
        if part in ("all", *(("backward", third) if push else ("forward",))):
            times[layer] += (problem.spread_ns or ())[layer]
    return replace(problem, compute_ns=times)


def counted(problem: ibatch.Problem, boundaries: tuple[int, ...], mean: bool) -> Fraction:
    usual = objective(problem, boundaries)
    parts = ("all", "backward", "first", "middle", "last", "forward")
    times = [objective(late(problem, part), boundaries) for part in parts]
    return Fraction(4 * usual + sum(times), 10) if mean else Fraction(sorted([usual, *times])[-2])


@settings(max_examples=100)
@given(spread_problems(), st.booleans())
def test_no_batches_that_may_be_are_better(problem: ibatch.Problem, mean: bool) -> None:
    outlook = measured(None if mean else Fraction(90))
    result, prospect = robust_plan(IBATCH, problem, outlook, NEVER)
    if result.plan is None:
        assert prospect is None
        return
    assert prospect is not None
    best = min(objective(problem, boundaries) for boundaries in all_boundaries(problem))
    values = {
        boundaries: counted(problem, boundaries, mean) for boundaries in all_boundaries(problem)
    }
    allowed = [values[value] for value in values if objective(problem, value) <= MAX_LOSS * best]
    assert prospect.bound <= min(values.values())
    assert prospect.value == min(allowed) == values[boundaries_of(problem, result.plan)]
    assert prospect.usual_ns == best == result.lower_bound_ns
    assert result.objective_ns == objective(problem, boundaries_of(problem, result.plan))
    assert (result.status == "optimal") == (result.objective_ns == best)


@settings(max_examples=30)
@given(spread_problems(14), percentiles, st.data())
def test_of_many_layers_it_is_no_worse(
    problem: ibatch.Problem, percentile: Fraction | None, data: st.DataObject
) -> None:
    likely = data.draw(
        st.sampled_from([measured(percentile), ScenarioSet(((SCENARIOS[1], Fraction(1)),))])
    )
    result, prospect = robust_plan(IBATCH, problem, likely, NEVER)
    if prospect is None:
        return
    assert prospect.bound <= prospect.value <= prospect.usual_value
    assert result.objective_ns is not None
    assert result.objective_ns <= MAX_LOSS * prospect.usual_ns
    assert (result.plan, prospect) == (
        robust_plan(IBATCH, problem, likely, NEVER)[0].plan,
        prospect,
    )


def test_what_costs_little_and_bears_much_is_taken() -> None:
    """One batch is best by a nanosecond, and late whenever the last gradient is."""
    problem = ibatch.Problem(
        compute_ns=(1000, 1000),
        spread_ns=(1000, 0),
        startup_ns=1,
        transfer_ns=(0, 1000),
        direction="push",
    )
    result, prospect = robust_plan(IBATCH, problem, measured(), NEVER)
    assert prospect is not None
    assert result.plan is not None
    assert len(result.plan.batches) == 2
    assert prospect.value <= prospect.usual_value


def test_eq4_knows_no_scenarios() -> None:
    problem = ibatch.Problem(
        compute_ns=(1,), startup_ns=1, transfer_ns=(1,), objective="eq4", spread_ns=(1,)
    )
    with pytest.raises(InvalidInputError) as refused:
        robust_plan(IBATCH, problem, ScenarioSet(((Scenario(), Fraction(1)),)), NEVER)
    assert refused.value.path == "objective"


@pytest.mark.slow
@settings(max_examples=100)
@given(problems(max_layers=6, objective="makespan"))
def test_the_best_batches_of_every_scenario_are_found(problem: ibatch.Problem) -> None:
    for method in ("auto", "layer_by_layer", "one_batch"):
        plan = ibatch.solve(problem, method=method).plan
        if plan is None:
            continue
        rows = regrets(IBATCH, problem, plan, NEVER)
        assert [row.scenario for row in rows] == list(SCENARIOS)
        for row in rows:
            other = IBATCH.perturb(problem, row.scenario)
            assert row.plan_ns == objective(other, boundaries_of(problem, plan))
            assert row.best_ns == row.bound_ns == brute_force(other)
            assert row.at_least == row.at_most
            assert (row.ddp_ns is None) >= (problem.direction == "pull")


@given(problems(max_layers=5, objective="eq4"))
def test_batches_that_break_eq5_in_a_scenario_have_none(problem: ibatch.Problem) -> None:
    plan = ibatch.solve(problem).plan
    if plan is None:
        return
    for row in regrets(IBATCH, problem, plan, NEVER):
        best = brute_force(IBATCH.perturb(problem, row.scenario))
        assert best is not None
        assert row.best_ns == best <= row.plan_ns


def test_a_rank_falls_behind_in_the_backward_pass_only() -> None:
    scenario = Scenario(Fraction(2), Fraction(3), Fraction(1, 2), Fraction(1, 2))
    given = {"startup_ns": 5, "transfer_ns": (10, 20), "compute_ns": (100, 200)}
    pull, push = (
        IBATCH.perturb(ibatch.Problem(**given, direction=direction), scenario)  # type: ignore[arg-type]
        for direction in ("pull", "push")
    )
    assert pull.compute_ns == (200, 400)
    assert push.compute_ns == (300, 600)
    assert (push.startup_ns, push.transfer_ns) == (15, (20, 40))


def test_plans_priced_of_many_layers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the longer the more layers there are, and has the more neighbours."""
    priced = []

    def counted(problem: ibatch.Problem, plan: ibatch.Plan) -> ibatch.Evaluation:
        priced.append(problem.layers)
        return ibatch.evaluate(problem, plan)

    monkeypatch.setattr("planner.families.ibatch.family.evaluate", counted)
    count = 500
    problem = ibatch.Problem(
        compute_ns=[1 + (37 * layer) % 101 for layer in range(count)],
        spread_ns=[(53 * layer) % 97 for layer in range(count)],
        startup_ns=100,
        transfer_ns=[1 + (71 * layer) % 89 for layer in range(count)],
        direction="push",
    )
    robust_plan(IBATCH, problem, measured(), NEVER)
    assert sum(priced) <= 2 * 2 * 10**5


def test_a_scenario_multiplies_what_it_says() -> None:
    table = TableCost(((10, 30), (110, 130)))
    scenario = Scenario(computation=Fraction(2), startup=Fraction(3), bandwidth=Fraction(1, 2))
    problem = Problem(compute_ns=[7], layer_bytes=[110], cost=table)
    other = IBATCH.perturb(problem, scenario)
    assert (other.compute_ns, other.transfer_time(0, 1)) == ((14,), 3 * 30 + 2 * 100)
    added = Problem(compute_ns=[7], startup_ns=5, transfer_ns=[20])
    other = IBATCH.perturb(added, scenario)
    assert (other.startup_ns, other.transfer_ns) == (15, (40,))
