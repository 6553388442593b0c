"""Results cannot claim what is not proven."""

import pytest

from planner import Result, Status
from planner.solving.result import Infeasibility

WHY = Infeasibility("because", ("field",))


def test_optimal_is_derived_from_the_bound() -> None:
    assert Result("m", "plan", 5, 5, 0.0).status == Status.OPTIMAL
    assert Result("m", "plan", 5, 5, 0.0, timed_out=True).status == Status.OPTIMAL
    assert Result("m", "plan", 5, 4, 0.0).status == Status.FEASIBLE
    assert Result("m", "plan", 5, None, 0.0).status == Status.FEASIBLE
    assert Result("m", "plan", 5, 4, 0.0, timed_out=True).status == Status.TIME_LIMIT
    assert Result("m", None, None, None, 0.0, infeasibility=WHY).status == Status.INFEASIBLE
    assert Result("m", None, None, None, 0.0, True, WHY).status == Status.TIME_LIMIT


def test_gap() -> None:
    assert Result("m", "plan", 5, 4, 0.0).gap == pytest.approx(0.25)
    assert Result("m", "plan", 0, 0, 0.0).gap == 0.0
    assert Result("m", "plan", 1, 0, 0.0).gap == float("inf")
    assert Result("m", "plan", 5, None, 0.0).gap is None


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="less than the bound"):
        Result("m", "plan", 3, 4, 0.0)
    with pytest.raises(ValueError, match="either a plan"):
        Result[str, None]("m", None, None, None, 0.0)
    with pytest.raises(ValueError, match="either a plan"):
        Result("m", "plan", 3, None, 0.0, infeasibility=WHY)
    with pytest.raises(ValueError, match="objective"):
        Result("m", "plan", None, None, 0.0)


def test_a_result_is_printed_as_a_table() -> None:
    made: Result[str, None] = Result(
        "greedy", "p" * 99, 1_500_000, 1_000_000, 0.25, warnings=("one", "two")
    )
    assert str(made).splitlines() == [
        "status       feasible",
        "method       greedy",
        "objective    1.5 ms",
        "lower bound  1 ms",
        "above bound  50.00%",
        "run time     250 ms",
        f"plan         '{'p' * 74}…",
        "warning      one",
        "warning      two",
    ]
    none: Result[str, None] = Result("auto", None, None, None, 0.0, infeasibility=WHY)
    assert str(none).splitlines() == [
        "status       infeasible",
        "method       auto",
        "run time     0 ns",
        "no plan      because",
    ]
    assert "above bound" not in str(Result("m", "plan", 1, 0, 0.0))


def test_a_result_is_shown_in_one_line() -> None:
    made: Result[str, None] = Result("greedy", "p" * 99, 1_500_000, 1_000_000, 0.25)
    assert repr(made) == "Result(greedy: feasible, objective_ns=1500000, lower_bound_ns=1000000)"
