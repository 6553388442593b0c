"""Batches whose communication and computation disturb each other, and pulls for FSDP2."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import AffineCost, Result
from planner.families.ibatch import Evaluation, Plan, Problem, check, evaluate, family, solve
from planner.families.ibatch.bounds import contention_relaxation
from planner.families.ibatch.family import IBATCH
from planner.families.ibatch.methods import BASELINES, default, exported
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.errors import NotApplicableError
from planner.solving.deadline import Deadline
from planner.solving.targets import FSDP2
from planner.testing.strategies import interferences
from tests import oracles
from tests.present import present
from tests.solved import Solved
from tests.strategies import problems


def with_cost(problem: Problem) -> Problem:
    """By the size of a batch: where times are given by layer nobody knows what is sent."""
    if problem.cost is not None:
        return problem
    cost = AffineCost(present(problem.startup_ns), Fraction(3, 2))
    return replace(problem, startup_ns=None, transfer_ns=None, cost=cost)


disturbed = st.builds(
    lambda problem, interference: replace(problem, interference=interference),
    problems(objective="makespan").map(with_cost),
    interferences(),
)


def exactly(problem: Problem, plan: Plan) -> Fraction:
    """What a plan lasts, by shares of work at constant rates: nothing is rounded."""
    contention = problem.interference
    ends = list(accumulate((sum(problem.compute_ns[a:b]) for a, b in plan.batches), initial=0))
    now = done = Fraction(0)
    for place, (start, stop) in enumerate(plan.batches):
        most = ends[-1]
        if problem.direction == "pull":
            most = ends[place]  # only what was sent before can be computed
        elif done < ends[place + 1]:  # computes alone until there is something to send
            now, done = now + ends[place + 1] - done, Fraction(ends[place + 1])
        left = alone = Fraction(oracles.communication(problem, start, stop))
        if left and done < most:
            size = sum(present(problem.layer_bytes)[start:stop])
            asked = contention.startup_ns + ceil(contention.ns_per_byte * size)
            taken = min(alone, Fraction(asked))
            sending = alone / (contention.slowdown * alone + contention.delay_ns)
            computing = 1 - taken * sending / alone
            both = left / sending
            if computing:
                both = min(both, (most - done) / computing)
            now, done, left = now + both, done + computing * both, left - sending * both
        now += left
    return now + ends[-1] - done


def answers(problem: Problem) -> Iterator[tuple[str, Result[Plan, Evaluation]]]:
    """Yield the results of the rules that apply, and their names."""
    for method in BASELINES:
        with suppress(NotApplicableError):
            yield method, solve(problem, method=method)


HIDDEN = Problem(
    compute_ns=(30, 1),
    layer_bytes=(10, 20),
    cost=AffineCost(0, Fraction(1)),
    interference=Interference(1),
)
"""Nearly all of the second transfer can be hidden."""


@settings(max_examples=400)
@given(disturbed)
@example(HIDDEN)
def test_a_plan_costs_what_happens_and_none_is_below_the_bound(problem: Problem) -> None:
    alone = replace(problem, interference=NO_CONTENTION)
    for plan in map(problem.plan, oracles.all_boundaries(problem)):
        lasts = evaluate(problem, plan).makespan_ns
        assert abs(lasts - exactly(problem, plan)) <= 3 * len(plan.batches) + 3
        assert lasts >= evaluate(alone, plan).makespan_ns
        assert lasts >= contention_relaxation(problem)
    for method, result in answers(problem):  # rules know nothing of it
        assert result.plan == solve(alone, method=method).plan


@settings(max_examples=100)
@given(disturbed)
def test_the_search_is_never_behind_a_rule_nor_ahead_of_the_best(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, "BESIDE", 0)
        result = solve(problem)
    if result.plan is None:
        return
    found = Solved.of(result)
    check(problem, found.plan)
    assert found.bound_ns <= Solved.of(solve(problem)).iteration_ns <= found.iteration_ns
    for _, other in answers(problem):
        assert other.objective_ns is None or found.iteration_ns <= other.objective_ns


def test_pairs_of_neighbours_keep_to_the_cap() -> None:
    problem = Problem(
        compute_ns=(1,) * 3,
        layer_bytes=(4,) * 3,
        cost=AffineCost(1, Fraction(1)),
        max_batch_bytes=8,
        interference=Interference(1),
    )
    joined = IBATCH.merged(problem, problem.plan((0, 1, 2, 3)), 0)
    assert joined == problem.plan((0, 2, 3))
    assert IBATCH.merged(problem, joined, 0) is None


# Pulls for FSDP2: the best of all batches, never slower than its default.


TOO_LARGE = Problem(
    compute_ns=(1,), startup_ns=0, transfer_ns=(1,), layer_bytes=(6,), max_batch_bytes=5
)


def pulls(problem: Problem) -> Problem:
    return replace(problem, direction="pull", objective="makespan", target=FSDP2)


@given(problems(max_layers=7))
@example(TOO_LARGE)
def test_the_best_batches_are_what_fsdp2_can_be_told(problem: Problem) -> None:
    """And without time there is the default."""
    mine = pulls(problem)
    uncapped = replace(mine, max_batch_bytes=None)
    hurried = evaluate(uncapped, present(default(uncapped, Deadline(1e-9)).plan))
    assert solve(uncapped, method="fsdp2").objective_ns == hurried.makespan_ns
    result, default_result = solve(mine), solve(mine, method="fsdp2")
    assert result.objective_ns == oracles.brute_force(replace(mine, target=None))
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
def test_disturbed_pulls_are_no_slower_than_the_default(problem: Problem) -> None:
    mine = replace(pulls(problem), max_batch_bytes=None)
    best, usual = Solved.of(solve(mine)), present(default(mine).plan)
    assert best.iteration_ns <= evaluate(mine, usual).makespan_ns


def test_pushes_are_not_told_to_fsdp2() -> None:
    pushed = Problem(compute_ns=(1, 2), startup_ns=1, transfer_ns=(3, 4), direction="push")
    assert exported(pushed, evaluate(pushed, Plan(((0, 2),)))) == {}
