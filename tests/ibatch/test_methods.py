"""Every method against brute force, against each other and against the literal algorithms."""

from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner import AffineCost, Status, TableCost
from planner.families.ibatch import METHODS, Problem, check, evaluate, solve
from planner.families.ibatch.bounds import relaxation
from planner.families.ibatch.family import BOUND_MAX_LAYERS
from planner.families.ibatch.methods import MAX_LAYERS
from planner.model.errors import NotApplicableError
from tests import oracles
from tests.present import present
from tests.solved import Solved
from tests.strategies import huge_problems, problems

SOLVERS = ("milp", "cpsat")
PUSH_ONLY = ("mg_wfbp", "ddp")
OBJECTIVES = ("makespan", "eq4")

each_solver = pytest.mark.parametrize("method", SOLVERS)
each_objective = pytest.mark.parametrize("objective", OBJECTIVES)


def pseudo_random(count: int, startup_ns: int = 300, **more: Any) -> Problem:
    """Return a problem of times below 1000, always the same."""
    transfers = [(i * 7919 + 31) % 1000 for i in range(count)]
    computation = [(i * 104_729 + 17) % 1000 for i in range(count)]
    return Problem(startup_ns=startup_ns, transfer_ns=transfers, compute_ns=computation, **more)


SMALL: dict[str, Any] = {"startup_ns": 0, "transfer_ns": [4, 1], "compute_ns": [7, 7]}
BEYOND = Problem(**SMALL, layer_bytes=[4, 4], max_batch_bytes=5, objective="eq4")
"""Of this the greedy algorithms merge batches for Eq. 5, beyond the cap."""

UNMERGED = Problem(
    startup_ns=9, transfer_ns=[2, 8, 3, 15], compute_ns=[14, 15, 20, 12], objective="eq4"
)
"""Without merging the remainder, the greedy's Eq. 4 would be 67, below the optimum 87."""


@settings(max_examples=500)
@given(huge_problems())
def test_exact_equals_brute_force_at_the_edge_of_the_range(problem: Problem) -> None:
    assert solve(problem).objective_ns == oracles.brute_force(problem)


@pytest.mark.slow
@settings(max_examples=1200)
@given(problems())
@example(BEYOND)
@example(UNMERGED)
def test_exact_equals_brute_force_and_is_the_bound_of_every_plan(problem: Problem) -> None:
    best, found = oracles.brute_force(problem), solve(problem)
    assert found.objective_ns == best
    assert found.status == (Status.INFEASIBLE if best is None else Status.OPTIMAL)
    assert best is None or relaxation(problem) <= best
    for method in METHODS:
        if method in SOLVERS or (method in PUSH_ONLY and problem.direction == "pull"):
            continue
        result = solve(problem, method=method)
        assert result.lower_bound_ns == best or result.plan is None


@settings(max_examples=600)
@given(problems())
def test_evaluation_equals_literal_simulation(problem: Problem) -> None:
    for boundaries in oracles.all_boundaries(problem):
        priced = evaluate(problem, problem.plan(boundaries))
        assert priced.makespan_ns == oracles.makespan(problem, boundaries)
        assert priced.eq4_ns == oracles.eq4(problem, boundaries)
        assert priced.eq5_holds == oracles.eq5(problem, boundaries)
        sent = sum(oracles.communication(problem, a, b) for a, b in pairwise(boundaries))
        both = (
            min(one.transfer_end_ns, other.compute_end_ns)
            - max(one.transfer_start_ns, other.compute_start_ns)
            for one, other in product(priced.schedule, repeat=2)
        )
        assert priced.overlap_ns == sum(time for time in both if time > 0)
        assert priced.overlap_ns + priced.exposed_communication_ns == sent
        assert priced.overlap_ns + priced.exposed_computation_ns == sum(problem.compute_ns)
        if priced.eq5_holds:
            assert priced.eq4_ns == priced.makespan_ns


@settings(max_examples=400)
@given(problems(objective="makespan", capped=False))
def test_greedy_algorithms_equal_their_literal_form(problem: Problem) -> None:
    for method, literal in (
        ("greedy_forward", oracles.literal_greedy_forward),
        ("greedy_backward", oracles.literal_greedy_backward),
    ):
        result = solve(problem, method=method)
        assert result.objective_ns == oracles.makespan(problem, literal(problem)), method


@settings(max_examples=300)
@given(problems(direction="push", objective="makespan", capped=False))
def test_mg_wfbp_equals_its_literal_form(problem: Problem) -> None:
    plan = Solved.of(solve(problem, method="mg_wfbp")).plan
    assert oracles.boundaries_of(problem, plan) == oracles.literal_mg_wfbp(problem)


def test_mg_wfbp_is_not_optimal() -> None:
    """Ten layers, backward 0.9, transfer 0.3, start-up 1: it ends at 13.0, the optimum is 10.6."""
    problem = Problem(direction="push", startup_ns=10, transfer_ns=[3] * 10, compute_ns=[9] * 10)
    assert solve(problem, method="mg_wfbp").objective_ns == 130
    assert solve(problem).objective_ns == 106


@pytest.mark.parametrize("method", [*SOLVERS, "exact"])
def test_eq5_holds_with_equality(method: str) -> None:
    problem = Problem(startup_ns=0, transfer_ns=[1, 5], compute_ns=[5, 1], objective="eq4")
    assert solve(problem, method=method).objective_ns == 7


def test_ddp_buckets_close_once_their_limit_is_reached() -> None:
    """Backward order: 0.5 + 1 reaches 1 MiB; 6 + 20 reaches 25 MiB; 1 + 30 reaches 25 MiB."""
    sizes = [round(2**20 * mebibytes) for mebibytes in (30, 1, 20, 6, 1, 0.5)]
    each = [1] * 6
    problem = Problem(
        direction="push", startup_ns=1, transfer_ns=each, compute_ns=each, layer_bytes=sizes
    )
    assert Solved.of(solve(problem, method="ddp")).plan.batches == ((4, 6), (2, 4), (0, 2))


@pytest.mark.parametrize("method", [*SOLVERS, "exact"])
def test_what_binds_is_named(method: str) -> None:
    """The cap; and under Eq. 4 that the second layer cannot cover the computation of the first."""
    found = []
    cases = ([1, 1, 1], [5, 50, 60], "makespan"), ([100, 1], [10, 10], "eq4")
    for compute, sizes, objective in cases:
        fields: dict[str, Any] = {"startup_ns": 0, "compute_ns": compute, "objective": objective}
        fields |= {"transfer_ns": [1] * len(sizes), "layer_bytes": sizes, "max_batch_bytes": 10}
        found.append(present(solve(Problem(**fields), method=method).infeasibility))
    cap, eq5 = found
    assert (cap.binding, cap.layers) == (("max_batch_bytes",), (1, 2))
    assert "60" in cap.reason
    assert "eq5" in eq5.binding


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "one_batch"])
def test_a_time_limit_leaves_a_plan_and_its_gap(method: str) -> None:
    """Of a method that needs no search the limit cuts the proof, which `time_limit` says too."""
    problem = pseudo_random(30_000, startup_ns=3)
    result, best = solve(problem, method=method, time_limit=1e-9), solve(problem)
    assert (result.status, best.status) == (Status.TIME_LIMIT, Status.OPTIMAL)
    hurried = Solved.of(result)
    check(problem, hurried.plan)
    assert hurried.bound_ns <= Solved.of(best).iteration_ns <= hurried.iteration_ns
    assert present(result.gap) > 0


@pytest.mark.parametrize("method", [*SOLVERS, "exact"])
def test_without_time_there_may_be_no_plan_under_eq4_and_a_cap(method: str) -> None:
    result = solve(BEYOND, method=method, time_limit=1e-9)
    assert (result.plan, result.status) == (None, Status.TIME_LIMIT)
    assert present(result.infeasibility).binding == ("time_limit_s",)


def test_long_chains_with_rounded_rates_are_bounded_without_the_quadratic_method() -> None:
    count = BOUND_MAX_LAYERS + 1
    cost = AffineCost(5, Fraction(1, 7))
    problem = Problem(compute_ns=[7] * count, layer_bytes=[3] * count, cost=cost)
    assert solve(problem, method="one_batch").lower_bound_ns == relaxation(problem)


# The relaxation is met where nothing can be better: that is how a looser one is noticed.

few_ns = st.integers(0, 50)
rows = st.lists(st.tuples(few_ns, few_ns), min_size=1, max_size=7)


@given(rows, st.sampled_from(["pull", "push"]))
def test_without_start_ups_the_bound_is_the_optimum(
    layers: list[tuple[int, int]], direction: Any
) -> None:
    """Layer by layer nothing waits for more than it needs."""
    sending, computing = zip(*layers, strict=True)
    problem = Problem(startup_ns=0, transfer_ns=sending, compute_ns=computing, direction=direction)
    assert relaxation(problem) == solve(problem, method="layer_by_layer").objective_ns


@each_objective
@given(few_ns, few_ns, few_ns)
def test_the_bound_of_one_layer_is_its_time(
    objective: Any, startup: int, sending: int, computing: int
) -> None:
    problem = Problem(
        startup_ns=startup, transfer_ns=[sending], compute_ns=[computing], objective=objective
    )
    assert relaxation(problem) == startup + sending + computing


@given(st.integers(0, 9), st.integers(1, 50), few_ns)
def test_the_bound_of_a_small_transfer_is_the_time_of_the_smallest_measured_one(
    size: int, time: int, computing: int
) -> None:
    """And a table that goes through 0 has no transfer below its rate."""
    table = TableCost(((10, time), (20, 2 * time)))
    for sent, lasts in ((size, time), (10 * size + 10, (size + 1) * time)):
        problem = Problem(layer_bytes=[sent], cost=table, compute_ns=[computing])
        assert relaxation(problem) == lasts + computing


# PuLP and CP-SAT, independent witnesses.


@pytest.mark.slow
@each_solver
@each_objective
def test_solvers_equal_exact_beyond_brute_force(method: str, objective: str) -> None:
    problem = pseudo_random(18, objective=objective)
    result = solve(problem, method=method, time_limit=60)
    assert result.status == Status.OPTIMAL
    assert result.objective_ns == solve(problem).objective_ns


@each_solver
@each_objective
def test_huge_times_still_give_valid_plans(method: str, objective: Any) -> None:
    """Solvers compute with fewer digits; what they choose is priced exactly."""
    problem = Problem(
        startup_ns=2**50 + 1,
        transfer_ns=[2**50 + i for i in range(6)],
        compute_ns=[2**51 - i for i in range(6)],
        objective=objective,
    )
    best = present(oracles.brute_force(problem))
    assert best <= Solved.of(solve(problem, method=method)).iteration_ns <= best * (1 + 1e-6)


@each_solver
def test_too_many_layers_are_refused_not_tried(method: str) -> None:
    with pytest.raises(NotApplicableError, match=f"up to {MAX_LAYERS} layers"):
        solve(pseudo_random(MAX_LAYERS + 1), method=method)


@each_solver
def test_solvers_are_silent_and_leave_no_files(
    method: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("work")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    problem = Problem(startup_ns=4, transfer_ns=[3, 1, 5], compute_ns=[2, 6, 1])
    assert solve(problem, method=method).objective_ns == 18
    assert capfd.readouterr() == ("", "")
    assert list(folder.iterdir()) == []
