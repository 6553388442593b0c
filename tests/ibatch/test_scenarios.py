"""Regret of batches: against brute force in every scenario."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from planner.ibatch.scenarios import regretted, under

from planner import ibatch
from planner.deadline import NEVER
from planner.scenarios import SCENARIOS, Scenario
from tests.oracles import boundaries_of, brute_force, objective
from tests.strategies import problems


@pytest.mark.slow
@settings(max_examples=100)
@given(problems(max_layers=6, objective="makespan"))
def test_the_best_batches_of_every_scenario_are_found(problem: ibatch.Problem) -> None:
    for method in ("auto", "layer_by_layer", "one_batch"):
        plan = ibatch.solve(problem, method=method).plan
        if plan is None:
            continue
        rows = regretted(problem, plan, NEVER)
        assert [row.scenario for row in rows] == list(SCENARIOS)
        for row in rows:
            other = under(problem, row.scenario)
            assert row.plan_ns == objective(other, boundaries_of(problem, plan))
            assert row.best_ns == row.bound_ns == brute_force(other)
            assert row.at_least == row.at_most
            assert (row.ddp_ns is None) >= (problem.direction == "pull")


@given(problems(max_layers=5, objective="eq4"))
def test_batches_that_break_eq5_in_a_scenario_have_none(problem: ibatch.Problem) -> None:
    plan = ibatch.solve(problem).plan
    if plan is None:
        return
    for row in regretted(problem, plan, NEVER):
        best = brute_force(under(problem, row.scenario))
        assert best is not None
        assert row.best_ns == best <= row.plan_ns


def test_a_rank_falls_behind_in_the_backward_pass_only() -> None:
    scenario = Scenario(Fraction(2), Fraction(3), Fraction(1, 2), Fraction(1, 2))
    given = {"startup_ns": 5, "transfer_ns": (10, 20), "compute_ns": (100, 200)}
    pull, push = (
        under(ibatch.Problem(**given, direction=direction), scenario)  # type: ignore[arg-type]
        for direction in ("pull", "push")
    )
    assert pull.compute_ns == (200, 400)
    assert push.compute_ns == (300, 600)
    assert (push.startup_ns, push.transfer_ns) == (15, (20, 40))
