"""PuLP and CP-SAT, independent witnesses, against the exact methods."""

from typing import Literal

import pytest

from planner import Status, TableCost
from planner.families.ibatch import Problem, check, solve
from planner.families.ibatch.methods import MAX_LAYERS
from planner.model.errors import NotApplicableError
from tests import oracles

SOLVERS = ("milp", "cpsat")


@pytest.mark.parametrize("method", [*SOLVERS, "exact"])
def test_eq5_holds_with_equality(method: str) -> None:
    problem = Problem(startup_ns=0, transfer_ns=[1, 5], compute_ns=[5, 1], objective="eq4")
    assert solve(problem, method=method).objective_ns == 7


@pytest.mark.slow
@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("objective", ["makespan", "eq4"])
def test_solvers_equal_exact_beyond_brute_force(
    method: str, objective: Literal["makespan", "eq4"]
) -> None:
    count = 18
    problem = Problem(
        startup_ns=300,
        transfer_ns=[(i * 7919 + 31) % 1000 for i in range(count)],
        compute_ns=[(i * 104_729 + 17) % 1000 for i in range(count)],
        objective=objective,
    )
    result = solve(problem, method=method, time_limit=60)
    assert result.status == Status.OPTIMAL
    assert result.objective_ns == solve(problem).objective_ns


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("objective", ["makespan", "eq4"])
def test_huge_times_still_give_valid_plans(
    method: str, objective: Literal["makespan", "eq4"]
) -> None:
    problem = Problem(
        startup_ns=2**50 + 1,
        transfer_ns=[2**50 + i for i in range(6)],
        compute_ns=[2**51 - i for i in range(6)],
        objective=objective,
    )
    result = solve(problem, method=method)
    best = oracles.brute_force(problem)
    assert result.objective_ns is not None
    assert best is not None
    # Solvers compute with fewer digits; what they choose is priced exactly.
    assert best <= result.objective_ns <= best * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("objective", ["makespan", "eq4"])
@pytest.mark.parametrize("cap", [None, 600])
def test_a_time_limit_leaves_a_plan_and_its_gap(
    method: str, objective: Literal["makespan", "eq4"], cap: int | None
) -> None:
    count = 120
    problem = Problem(
        compute_ns=[(i * 104_729) % 1000 for i in range(count)],
        layer_bytes=[(i * 7919) % 100 for i in range(count)],
        cost=TableCost(((0, 2000), (300, 5000), (301, 4000), (5000, 50_000))),
        objective=objective,
        max_batch_bytes=cap,
    )
    result = solve(problem, method=method, time_limit=0.5)
    if result.plan is None:
        assert objective == "eq4"
        assert cap is not None
        assert result.infeasibility is not None
        assert result.status == (Status.TIME_LIMIT if result.timed_out else Status.INFEASIBLE)
        return
    check(problem, result.plan)
    assert result.gap is not None
    assert result.status in (Status.TIME_LIMIT, Status.OPTIMAL)


@pytest.mark.parametrize("method", SOLVERS)
def test_too_many_layers_are_refused_not_tried(method: str) -> None:
    count = MAX_LAYERS + 1
    problem = Problem(startup_ns=1, transfer_ns=[1] * count, compute_ns=[1] * count)
    with pytest.raises(NotApplicableError, match=f"up to {MAX_LAYERS} layers"):
        solve(problem, method=method)


@pytest.mark.parametrize("method", SOLVERS)
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
