"""Of plans with the least makespan the one that bears strains best is taken."""

import random
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import assume, given, settings

from planner import AffineCost
from planner.families.ibatch import METHODS, Plan, Problem
from planner.families.ibatch import solve as solve_ibatch
from planner.families.ibatch.evaluation import boundaries_of, lasts_under
from planner.families.ibatch.makespan import robust
from planner.solving.deadline import NEVER, Deadline
from planner.solving.tie_break import DELAYS
from tests import oracles
from tests.present import present
from tests.solved import Solved
from tests.strategies import huge_problems, problems

solve = partial(solve_ibatch, tie_break="robust")


def under(problem: Problem, boundaries: tuple[int, ...]) -> tuple[int, ...]:
    """What batches last under every strain, simulated literally."""
    return tuple(oracles.makespan(problem, boundaries, *delay) for delay in DELAYS)


def strained_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """What the package says that a plan lasts under every strain."""
    return tuple(lasts_under(problem, boundaries_of(plan), delay) for delay in DELAYS)


def hold_against_all_plans(problem: Problem) -> None:
    result = solve(problem)
    assume(result.plan is not None)
    plan = present(result.plan)
    best = min(
        under(problem, boundaries)
        for boundaries in oracles.all_boundaries(problem)
        if oracles.objective(problem, boundaries) == result.objective_ns
    )
    assert under(problem, oracles.boundaries_of(problem, plan)) == best
    assert strained_of(problem, plan) == best


@pytest.mark.slow
@settings(max_examples=2000)
@given(problems(additive=True, objective="makespan"))
def test_no_plan_with_the_same_objective_is_more_robust(problem: Problem) -> None:
    hold_against_all_plans(problem)


@settings(max_examples=500)
@given(huge_problems())
def test_nor_at_the_edge_of_the_range(problem: Problem) -> None:
    assume(problem.transfer_prefix is not None and problem.objective == "makespan")
    hold_against_all_plans(problem)


@settings(max_examples=500)
@given(problems())
def test_no_plan_becomes_longer_or_more_sensitive(problem: Problem) -> None:
    """Times that do not add up, and Eq. 4, too."""
    simple, chosen = solve_ibatch(problem, method="exact"), solve(problem, method="exact")
    assert simple.objective_ns == chosen.objective_ns
    assume(chosen.plan is not None and problem.objective == "makespan")
    found = present(METHODS["exact"](problem, NEVER).plan)
    assert strained_of(problem, Solved.of(chosen).plan) <= strained_of(problem, found)


def test_sweeps_find_as_robust_batches_where_times_do_not_add_up() -> None:
    """Costs that add up, and a rate just below theirs, of which that is not known."""
    source = random.Random(7)
    for _ in range(8):
        count = source.randint(40, 120)
        sizes, compute = ([source.randint(0, 1000) for _ in range(count)] for _ in range(2))
        startup = source.choice([0, 30, 3000])
        added = Problem(startup_ns=startup, transfer_ns=sizes, compute_ns=compute)
        # A rate just below 1: every batch is rounded up to its bytes, and nothing adds up.
        cost = AffineCost(startup, Fraction(10**9 - 1, 10**9))
        rounded = Problem(compute_ns=compute, layer_bytes=sizes, cost=cost)
        assert added.transfer_prefix is not None
        assert rounded.transfer_prefix is None
        one, other = Solved.of(solve(added)), Solved.of(solve(rounded))
        assert one.iteration_ns == other.iteration_ns
        assert strained_of(added, one.plan) == strained_of(rounded, other.plan)


@given(problems())
def test_without_time_the_plan_stays_what_it_is(problem: Problem) -> None:
    assume(problem.too_large() is None and problem.objective == "makespan")
    one_batch = problem.plan((0, problem.layers))
    assume(problem.reach(0) == problem.layers)
    assert robust(problem, one_batch, Deadline(0)) == one_batch
