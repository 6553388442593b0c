"""Batches whose communication and computation disturb each other."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import AffineCost
from planner.families.ibatch import Plan, Problem, check, evaluate, family, solve
from planner.families.ibatch.bounds import contention_relaxation
from planner.families.ibatch.family import IBATCH
from planner.families.ibatch.methods import BASELINES
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.errors import NotApplicableError
from planner.testing.strategies import interferences
from tests import oracles
from tests.strategies import problems


def with_cost(problem: Problem) -> Problem:
    """By the size of a batch: where times are given by layer nobody knows what is sent."""
    if problem.cost is not None:
        return problem
    assert problem.startup_ns is not None
    cost = AffineCost(problem.startup_ns, Fraction(3, 2))
    return replace(problem, startup_ns=None, transfer_ns=None, cost=cost)


disturbed = st.builds(
    lambda problem, interference: replace(problem, interference=interference),
    problems(objective="makespan").map(with_cost),
    interferences(),
)


def exactly(problem: Problem, plan: Plan) -> Fraction:
    """What a plan lasts, by shares of work at constant rates: nothing is rounded."""
    assert problem.layer_bytes is not None
    contention, pull = problem.interference, problem.direction == "pull"
    compute = [sum(problem.compute_ns[a:b]) for a, b in plan.batches]
    total = sum(compute)
    to_send = list(enumerate(plan.batches))
    now = done = left = alone = taken = Fraction(0)
    place = None  # of the batch under way
    while done < total or to_send or place is not None:
        if place is not None and not left:
            place = None
        if place is None and to_send:
            number, (start, stop) = to_send[0]
            if pull or done >= sum(compute[: number + 1]):
                place = number
                to_send.pop(0)
                alone = left = Fraction(oracles.communication(problem, start, stop))
                size = sum(problem.layer_bytes[start:stop])
                taken = min(
                    alone, Fraction(contention.startup_ns + ceil(contention.ns_per_byte * size))
                )
                continue
        if place is None and not to_send and done >= total:
            break
        waits = [number for number, _ in to_send] + ([] if place is None else [place])
        most = sum(compute[: min(waits)]) if pull and waits else total
        computing = Fraction(done < most)
        sending = Fraction(place is not None)
        if computing and sending:
            sending = alone / (contention.slowdown * alone + contention.delay_ns)
            computing = 1 - taken * sending / alone
        moments = [left / sending] if sending else []
        if computing:
            goals = [sum(compute[: number + 1]) for number, _ in to_send]
            moments += [(goal - done) / computing for goal in (most, *goals) if goal > done]
        step = min(moments)
        now, done, left = now + step, done + computing * step, left - sending * step
    return now


def every_plan(problem: Problem) -> list[Plan]:
    return [problem.plan(boundaries) for boundaries in oracles.all_boundaries(problem)]


@settings(max_examples=200)
@given(disturbed)
def test_a_plan_costs_what_happens(problem: Problem) -> None:
    for plan in every_plan(problem):
        evaluation = evaluate(problem, plan)
        off = evaluation.makespan_ns - exactly(problem, plan)
        assert abs(off) <= 3 * len(plan.batches) + 3
        assert (
            evaluation.makespan_ns
            >= evaluate(replace(problem, interference=NO_CONTENTION), plan).makespan_ns
        )


@settings(max_examples=200)
@given(disturbed)
def test_no_plan_is_below_the_bound_and_rules_know_nothing_of_it(problem: Problem) -> None:
    plans = every_plan(problem)
    assert all(
        contention_relaxation(problem) <= evaluate(problem, plan).makespan_ns for plan in plans
    )
    alone = replace(problem, interference=NO_CONTENTION)
    for method in BASELINES:
        with suppress(NotApplicableError):
            assert solve(problem, method=method).plan == solve(alone, method=method).plan


@settings(max_examples=100)
@given(disturbed)
def test_the_search_is_never_behind_a_rule_nor_ahead_of_the_best(problem: Problem) -> None:
    best = solve(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, "BESIDE", 0)
        found = solve(problem)
        if found.plan is None:
            return
        check(problem, found.plan)
        assert found.objective_ns is not None
        assert found.lower_bound_ns is not None
        assert best.objective_ns is not None
        assert found.lower_bound_ns <= best.objective_ns <= found.objective_ns
        for method in BASELINES:
            try:
                other = solve(problem, method=method).objective_ns
            except NotApplicableError:
                continue
            assert other is None or found.objective_ns <= other


def test_pairs_of_neighbours_keep_to_the_cap() -> None:
    problem = Problem(
        compute_ns=(1,) * 3,
        layer_bytes=(4,) * 3,
        cost=AffineCost(1, Fraction(1)),
        max_batch_bytes=8,
        interference=Interference(1),
    )
    plan = problem.plan((0, 1, 2, 3))
    joined = IBATCH.merged(problem, plan, 0)
    assert joined == problem.plan((0, 2, 3))
    assert IBATCH.merged(problem, joined, 0) is None
    assert all(stop - start <= 2 for start, stop in pairwise((0, 2, 3)))
