"""Regret of batches, and batches for several scenarios: against all batches of few layers."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.ibatch import IBATCH, Evaluation, Plan, Problem, evaluate, solve
from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_VALUE
from planner.solving.deadline import NEVER
from planner.solving.scenarios import MAX_LOSS, SCENARIOS, Scenario, ScenarioSet, measured
from planner.solving.what_if import regrets, robust_plan
from tests.oracles import all_boundaries, boundaries_of, brute_force, objective
from tests.present import present
from tests.solved import Solved
from tests.strategies import problems


@st.composite
def spread_problems(draw: st.DrawFn, most: int = 14) -> Problem:
    problem = draw(problems(max_layers=most, objective="makespan"))
    count = problem.layers
    spread = draw(st.lists(st.integers(0, 60), min_size=count, max_size=count))
    return replace(problem, spread_ns=spread)


def takes(problem: Problem, plan: Plan, scenario: Scenario) -> int:
    """What batches last in a scenario."""
    return objective(IBATCH.perturb(problem, scenario), boundaries_of(problem, plan))


def large() -> Problem:
    """One whose start-up may not be twice as long."""
    return Problem(compute_ns=(1,), startup_ns=MAX_VALUE // 8 * 5, transfer_ns=(1,))


def late(problem: Problem, part: str) -> Problem:
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


def counted(problem: Problem, boundaries: tuple[int, ...], mean: bool) -> Fraction:
    usual = objective(problem, boundaries)
    parts = ("all", "backward", "first", "middle", "last", "forward")
    times = [objective(late(problem, part), boundaries) for part in parts]
    return Fraction(4 * usual + sum(times), 10) if mean else Fraction(sorted([usual, *times])[-2])


@settings(max_examples=100)
@given(spread_problems(6), st.booleans())
def test_no_batches_that_may_be_are_better(problem: Problem, mean: bool) -> None:
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


def test_eq4_knows_no_scenarios() -> None:
    problem = Problem(
        compute_ns=(1,), startup_ns=1, transfer_ns=(1,), objective="eq4", spread_ns=(1,)
    )
    with pytest.raises(InvalidInputError) as refused:
        robust_plan(IBATCH, problem, ScenarioSet(((Scenario(), Fraction(1)),)), NEVER)
    assert refused.value.path == "objective"


@pytest.mark.slow
@settings(max_examples=100)
@given(problems(max_layers=6, objective="makespan"))
def test_the_best_batches_of_every_scenario_are_found(problem: Problem) -> None:
    for method in ("auto", "layer_by_layer", "one_batch"):
        plan = solve(problem, method=method).plan
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
def test_batches_that_break_eq5_in_a_scenario_have_none(problem: Problem) -> None:
    plan = solve(problem).plan
    if plan is None:
        return
    for row in regrets(IBATCH, problem, plan, NEVER):
        best = present(brute_force(IBATCH.perturb(problem, row.scenario)))
        assert row.best_ns == best <= row.plan_ns


def test_plans_priced_of_many_layers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the longer the more layers there are, and has the more neighbours."""
    priced = []

    def counted(problem: Problem, plan: Plan) -> Evaluation:
        priced.append(problem.layers)
        return evaluate(problem, plan)

    monkeypatch.setattr("planner.families.ibatch.family.evaluate", counted)
    count = 500
    problem = Problem(
        compute_ns=[1 + (37 * layer) % 101 for layer in range(count)],
        spread_ns=[(53 * layer) % 97 for layer in range(count)],
        startup_ns=100,
        transfer_ns=[1 + (71 * layer) % 89 for layer in range(count)],
        direction="push",
    )
    result, prospect = robust_plan(IBATCH, problem, measured(), NEVER)
    assert sum(priced) <= 2 * 2 * 10**5
    assert prospect is not None
    assert prospect.bound <= prospect.value <= prospect.usual_value
    assert Solved.of(result).iteration_ns <= MAX_LOSS * prospect.usual_ns


def test_a_scenario_multiplies_what_it_says() -> None:
    """A rank falls behind in the backward pass only: where gradients are pushed."""
    scenario = Scenario(Fraction(2), Fraction(3), Fraction(1, 2), Fraction(1, 2))
    table = TableCost(((10, 30), (110, 130)))
    sized = IBATCH.perturb(Problem(compute_ns=[7], layer_bytes=[110], cost=table), scenario)
    assert (sized.compute_ns, sized.transfer_time(0, 1)) == ((14,), 3 * 30 + 2 * 100)
    push = Problem(compute_ns=[7], startup_ns=5, transfer_ns=[20], direction="push")
    other = IBATCH.perturb(push, scenario)
    assert (other.compute_ns, other.startup_ns, other.transfer_ns) == ((21,), 15, (40,))
