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
from tests.present import present
from tests.solved import Solved
from tests.strategies import problems


def pulls(problem: Problem) -> Problem:
    return replace(problem, direction="pull", objective="makespan", target=FSDP2)


@given(problems(max_layers=7))
def test_the_best_batches_are_what_it_can_be_told(problem: Problem) -> None:
    """And without time there is the default."""
    mine = pulls(problem)
    uncapped = replace(mine, max_batch_bytes=None)
    hurried = evaluate(uncapped, present(default(uncapped, Deadline(1e-9)).plan))
    assert solve(uncapped, method="fsdp2").objective_ns == hurried.makespan_ns
    result, default_result = solve(mine), solve(mine, method="fsdp2")
    assert result.objective_ns == brute_force(replace(mine, target=None))
    assert (result.plan is None) == (default_result.plan is None)
    if result.plan is None:
        return
    best, usual = Solved.of(result), Solved.of(default_result)
    assert best.iteration_ns <= usual.iteration_ns
    rules = (solve(mine, method=rule).objective_ns for rule in ("layer_by_layer", "one_batch"))
    assert usual.iteration_ns == min(time for time in rules if time is not None)
    priced = exported(mine, evaluate(mine, best.plan))["fsdp2"]
    assert (priced.plan_ns, priced.default_ns) == (best.iteration_ns, usual.iteration_ns)


@given(disturbed)
def test_disturbed_plans_are_no_slower_than_the_default(problem: Problem) -> None:
    mine = replace(pulls(problem), max_batch_bytes=None)
    best, usual = Solved.of(solve(mine)), present(default(mine).plan)
    assert best.iteration_ns <= evaluate(mine, usual).makespan_ns
    if mine.interference == NO_CONTENTION:
        assert best.iteration_ns == min(evaluate(mine, cut).makespan_ns for cut in every_cut(mine))


def test_pushes_are_not_told_to_it() -> None:
    pushed = Problem(compute_ns=(1, 2), startup_ns=1, transfer_ns=(3, 4), direction="push")
    assert exported(pushed, evaluate(pushed, Plan(((0, 2),)))) == {}
