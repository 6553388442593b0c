"""Pulls for FSDP2: the best of all batches, never slower than its default; and what is refused."""

from dataclasses import replace

from hypothesis import given

from planner.families.ibatch import Plan, Problem, evaluate, solve
from planner.families.ibatch.methods import default, exported
from planner.model.contention import NO_CONTENTION
from planner.solving.deadline import Deadline
from planner.solving.targets import FSDP2
from tests.ibatch.test_beside import disturbed
from tests.ibatch.test_beside import every_plan as every_cut
from tests.oracles import brute_force
from tests.strategies import problems


def pulls(problem: Problem) -> Problem:
    return replace(problem, direction="pull", objective="makespan", target=FSDP2)


@given(problems(max_layers=7))
def test_the_best_batches_are_what_it_can_be_told(problem: Problem) -> None:
    mine = pulls(problem)
    best, usual = solve(mine), solve(mine, method="fsdp2")
    assert best.objective_ns == brute_force(replace(mine, target=None))
    assert (best.plan is None) == (usual.plan is None)
    if best.plan is None or usual.plan is None:
        return
    assert best.objective_ns is not None
    assert usual.objective_ns is not None
    assert best.objective_ns <= usual.objective_ns
    rules = (solve(mine, method=rule).objective_ns for rule in ("layer_by_layer", "one_batch"))
    assert usual.objective_ns == min(time for time in rules if time is not None)
    assert best.evaluation is not None
    priced = exported(mine, best.evaluation)["fsdp2"]
    assert (priced.plan_ns, priced.default_ns) == (best.objective_ns, usual.objective_ns)


@given(disturbed)
def test_disturbed_plans_are_no_slower_than_the_default(problem: Problem) -> None:
    mine = replace(pulls(problem), max_batch_bytes=None)
    best, usual = solve(mine), default(mine).plan
    assert best.objective_ns is not None
    assert usual is not None
    assert best.objective_ns <= evaluate(mine, usual).makespan_ns
    if mine.interference == NO_CONTENTION:
        assert best.objective_ns == min(evaluate(mine, cut).makespan_ns for cut in every_cut(mine))


@given(problems(max_layers=6))
def test_without_time_there_is_the_default(problem: Problem) -> None:
    mine = replace(pulls(problem), max_batch_bytes=None)
    usual = default(mine, Deadline(1e-9)).plan
    assert usual is not None
    assert solve(mine, method="fsdp2").objective_ns == evaluate(mine, usual).makespan_ns


def test_pushes_are_not_told_to_it() -> None:
    pushed = Problem(compute_ns=(1, 2), startup_ns=1, transfer_ns=(3, 4), direction="push")
    assert exported(pushed, evaluate(pushed, Plan(((0, 2),)))) == {}
