"""Batches under other conditions: contention, FSDP2's pulls, scenarios and strains.

Against all batches of few layers.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import accumulate
from math import ceil
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from planner import AffineCost, Result
from planner.families.ibatch import METHODS, Evaluation, Plan, Problem, check, evaluate, solve
from planner.families.ibatch import family as module
from planner.families.ibatch.bounds import contention_relaxation
from planner.families.ibatch.evaluation import lasts_under
from planner.families.ibatch.family import IBATCH
from planner.families.ibatch.makespan import robust
from planner.families.ibatch.methods import BASELINES, default, exported
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.costs import TableCost
from planner.model.errors import NotApplicableError
from planner.model.validation import MAX_VALUE
from planner.solving.deadline import NEVER, Deadline
from planner.solving.scenarios import MAX_LOSS, Scenario, ScenarioSet, measured
from planner.solving.targets import FSDP2
from planner.solving.tie_break import DELAYS
from planner.solving.what_if import robust_plan
from planner.testing.strategies import interferences
from tests import oracles
from tests.formats.refused import refused
from tests.oracles import all_boundaries, boundaries_of, objective
from tests.present import present
from tests.solved import Solved
from tests.strategies import huge_problems, problems


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
    for plan in map(problem.plan, all_boundaries(problem)):
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
        patch.setattr(module, "BESIDE", 0)
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
def test_disturbed_pulls_are_no_slower_than_the_default_and_pushes_not_told(
    problem: Problem,
) -> None:
    mine = replace(pulls(problem), max_batch_bytes=None)
    best, usual = Solved.of(solve(mine)), present(default(mine).plan)
    assert best.iteration_ns <= evaluate(mine, usual).makespan_ns
    assert exported(replace(mine, direction="push", target=None), evaluate(mine, usual)) == {}


# Regret of batches, and batches for scenarios.


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


def test_eq4_knows_no_scenarios() -> None:
    problem = Problem(
        compute_ns=(1,), startup_ns=1, transfer_ns=(1,), objective="eq4", spread_ns=(1,)
    )
    with refused("objective", ""):
        robust_plan(IBATCH, problem, ScenarioSet(((Scenario(), Fraction(1)),)), NEVER)


def test_plans_priced_of_many_layers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the longer the more layers there are, and has the more neighbours."""
    priced, count = Mock(side_effect=evaluate), 500
    monkeypatch.setattr("planner.families.ibatch.family.evaluate", priced)
    problem = Problem(
        compute_ns=[1 + (37 * layer) % 101 for layer in range(count)],
        spread_ns=[(53 * layer) % 97 for layer in range(count)],
        startup_ns=100,
        transfer_ns=[1 + (71 * layer) % 89 for layer in range(count)],
        direction="push",
    )
    result, prospect = robust_plan(IBATCH, problem, measured(), NEVER)
    assert 0 < priced.call_count * count <= 2 * 2 * 10**5
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


def test_layers_of_a_part_are_late_by_their_spreads() -> None:
    """All, the backward pass, its thirds, which begins at the last layer, and the forward pass."""
    known: dict[str, Any] = {"startup_ns": 1, "transfer_ns": [1] * 3, "compute_ns": [30] * 3}
    never, late = (30, 30, 30), (31, 32, 34)
    thirds = (30, 30, 34), (30, 32, 30), (31, 30, 30)
    for direction, expected in (
        ("push", [never, late, late, *thirds, never]),
        ("pull", [never, late, *[never] * 4, late]),
    ):
        problem = Problem(**{**known, "spread_ns": [1, 2, 4], "direction": direction})
        others = [IBATCH.perturb(problem, scenario) for scenario, _ in measured().scenarios]
        assert [other.compute_ns for other in others] == expected


# Of plans with the least makespan the one that bears strains best is taken.

solve_robust: Any = partial(solve, tie_break="robust")


def under(problem: Problem, boundaries: tuple[int, ...]) -> tuple[int, ...]:
    """What batches last under every strain, simulated literally."""
    return tuple(oracles.makespan(problem, boundaries, *delay) for delay in DELAYS)


def strained_of(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """What the package says that a plan lasts under every strain."""
    return tuple(lasts_under(problem, boundaries_of(problem, plan), delay) for delay in DELAYS)


additive_makespans = problems(additive=True, objective="makespan") | huge_problems().filter(
    lambda problem: problem.transfer_prefix is not None and problem.objective == "makespan"
)


@pytest.mark.slow
@settings(max_examples=2000)
@given(additive_makespans)
def test_no_plan_with_the_same_objective_is_more_robust(problem: Problem) -> None:
    result = solve_robust(problem)
    assume(result.plan is not None)
    best = min(
        under(problem, boundaries)
        for boundaries in all_boundaries(problem)
        if objective(problem, boundaries) == result.objective_ns
    )
    assert under(problem, boundaries_of(problem, result.plan)) == best
    assert strained_of(problem, result.plan) == best


@settings(max_examples=500)
@given(problems())
def test_no_plan_becomes_longer_or_more_sensitive(problem: Problem) -> None:
    """Times that do not add up, and Eq. 4, too."""
    simple, chosen = solve(problem, method="exact"), solve_robust(problem, method="exact")
    assert simple.objective_ns == chosen.objective_ns
    assume(chosen.plan is not None and problem.objective == "makespan")
    found = present(METHODS["exact"](problem, NEVER).plan)
    assert strained_of(problem, Solved.of(chosen).plan) <= strained_of(problem, found)


def test_methods_agree_and_sweeps_are_as_robust_where_times_do_not_add_up() -> None:
    """Costs that add up, and a rate just below theirs, of which that is not known."""
    source = random.Random(7)
    for _ in range(12):
        count = source.randint(40, 200)
        sizes, compute = ([source.randint(0, 1000) for _ in range(count)] for _ in range(2))
        startup, cap = source.choice([0, 30, 3000, 10**6]), source.choice([None, 1000, 10**4])
        known: dict[str, Any] = {"compute_ns": compute, "layer_bytes": sizes}
        known |= {"max_batch_bytes": cap}
        added = Problem(startup_ns=startup, transfer_ns=sizes, **known)
        # A rate just below 1: every batch is rounded up to its bytes, and nothing adds up.
        cost = AffineCost(startup, Fraction(10**9 - 1, 10**9))
        rounded = Problem(cost=cost, **known)
        assert added.transfer_prefix is not None
        assert rounded.transfer_prefix is None
        one, other = Solved.of(solve_robust(added)), Solved.of(solve_robust(rounded))
        assert one.iteration_ns == other.iteration_ns
        for method in ("greedy", "layer_by_layer"):
            assert solve(added, method=method).lower_bound_ns == one.iteration_ns
        assert strained_of(added, one.plan) == strained_of(rounded, other.plan)


@given(problems())
def test_without_time_the_plan_stays_what_it_is(problem: Problem) -> None:
    assume(problem.too_large() is None and problem.objective == "makespan")
    one_batch = problem.plan((0, problem.layers))
    assume(problem.reach(0) == problem.layers)
    assert robust(problem, one_batch, Deadline(0)) == one_batch
