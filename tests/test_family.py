"""The one path from a problem to a result, and results of several methods side by side."""

import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any

import pytest

import planner
from planner import Result, Status
from planner.families import ibatch
from planner.model.errors import InvalidInputError, InvalidPlanError, NotApplicableError
from planner.solving.compare import compare
from planner.solving.deadline import NEVER, Deadline, Incumbent, TimeUpError
from planner.solving.family import OUT_OF_TIME, Family
from planner.solving.methods import REPLAN, Method, Outcome, lazy_method, without_auto
from planner.solving.result import Infeasibility
from tests.contract.test_every_method import FAMILIES
from tests.jsonio.test_plan_files import METHODS as REQUESTS
from tests.present import present
from tests.test_numbers import PROBLEMS as NUMBERS
from tests.words import Words

COSTS = {"abc": 5, "ab": 5, "a": 7, "b": 6}


def late(*_: object) -> None:
    raise TimeUpError


class Letters(Words):
    """Words whose letters are transfers; two neighbours are sent together by leaving out one."""

    same = True
    improved: tuple[str, ...] = ()

    def transfers(self, plan: str) -> int:
        return len(plan)

    def merged(self, problem: str, plan: str, place: int) -> str | None:
        return plan[: place + 1] + plan[place + 2 :]

    def same_bound(self, plan: str, other: str) -> bool:
        return self.same

    def improve(self, problem: str, plan: str, deadline: Deadline) -> Outcome[str]:
        self.improved += (plan,)
        return Outcome(plan)


def answering(plan: str, bound: int | None = None) -> Mapping[str, Method[str, str]]:
    return {"auto": lambda _, __: Outcome(plan, bound)}


def test_neighbours_are_sent_together_where_that_costs_nothing() -> None:
    family = Letters(COSTS, answering("abc", 5))
    result = family.solve("a problem")
    assert (result.plan, result.objective_ns, result.status) == ("ab", 5, Status.OPTIMAL)
    # A later pair is tried where the first one costs more.
    costs = {"xyz": 5, "xz": 9, "xy": 5, "x": 9}
    assert Letters(costs, answering("xyz")).solve("a problem").plan == "xy"
    # The bound of another plan is not kept where it is that of its order.
    family.same = False
    result = family.solve("a problem")
    assert (result.plan, result.lower_bound_ns, result.status) == ("ab", None, Status.FEASIBLE)


def test_a_start_plan_is_checked_before_it_is_improved() -> None:
    family = Letters(COSTS, answering("b"))
    result = family.solve("a problem", start="none of them")
    assert (result.plan, family.improved) == ("b", ())
    assert "start_plan is ignored: the start plan does not fit" in result.warnings[0]
    refused = family.solve("a problem", method=REPLAN, start="none of them")
    assert present(refused.infeasibility).binding == ("start_plan",)
    assert family.solve("a problem", start="ab").plan == "ab"
    assert family.improved == ("ab",)


def test_a_better_incumbent_takes_the_place_of_the_answer() -> None:
    def search(_: str, deadline: Deadline) -> Outcome[str]:
        for plan, bound in (("a", 3), ("ab", 4), ("b", 2), ("none", 9)):
            deadline.report_incumbent(plan, bound)
        return Outcome("a")

    told: list[Incumbent[str]] = []
    family = Letters(COSTS, {"auto": search}, 1)
    result = family.solve("a problem", on_progress=told.append)
    assert (result.plan, result.objective_ns, result.lower_bound_ns) == ("ab", 5, 1)
    known = [(one.plan, one.objective_ns, one.lower_bound_ns) for one in told]
    assert known == [("a", 7, 3), ("ab", 5, 4)]


def test_what_is_no_plan_is_a_fault_of_the_method() -> None:
    with pytest.raises(RuntimeError, match="method auto made no plan: plan: none"):
        Letters(COSTS, answering("nothing")).solve("a problem")
    with pytest.raises(InvalidPlanError):
        Letters(COSTS, {}).price("a problem", "nothing")


def test_a_plan_whose_bound_is_late_is_kept_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def method(_: str, deadline: Deadline) -> Outcome[str]:
        deadline.report_incumbent("good")
        raise TimeUpError

    family = Words({"good": 5}, {"m": method})
    monkeypatch.setattr(Words, "bound", late)
    result = family.solve("a problem", method="m", on_progress=lambda _: None)
    assert (result.plan, result.objective_ns, result.lower_bound_ns) == ("good", 5, None)
    assert result.timed_out


def test_plans_that_are_told_of_are_checked_within_the_limit() -> None:
    told: list[Incumbent[str]] = []

    class Slow(Words):
        def check(self, problem: str, plan: str, deadline: Deadline) -> None:
            assert deadline.remaining_s is not None
            if plan == "large":
                raise TimeUpError

    def method(_: str, deadline: Deadline) -> Outcome[str]:
        deadline.report_incumbent("large")
        deadline.report_incumbent("small")
        return Outcome("small", 5)

    family = Slow({"small": 5}, {"m": method})
    result = family.solve("a problem", method="m", time_limit=60, on_progress=told.append)
    assert [one.objective_ns for one in told] == [5, 5]
    assert result.plan == "small"


def test_an_old_plan_that_there_is_no_time_for_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Words({"good": 5, "old": 4}, {"m": lambda *_: Outcome("good", 5)})
    monkeypatch.setattr(Words, "improve", late)
    assert family.solve("a problem", method="m", start="old").plan == "good"
    slow = Words({"old": 5}, {"m": lambda *_: Outcome(None, infeasibility=OUT_OF_TIME)})
    monkeypatch.setattr(Words, "check", late)
    assert slow.solve("a problem", method="m", start="old").warnings == (
        "start_plan is ignored: the time limit passed before it was checked",
    )


WHY = Infeasibility("because", ("field",))


def test_status_and_gap_are_derived_from_the_bound() -> None:
    known: list[Result[str, None]] = [
        Result("m", "plan", cost, bound, 0.0, timed_out=late)
        for cost, bound in ((5, 5), (5, 4), (5, None), (0, 0), (1, 0))
        for late in (False, True)
    ]
    known += [Result("m", None, None, None, 0.0, late, WHY) for late in (False, True)]
    assert " ".join(result.status for result in known) == (
        "optimal optimal feasible time_limit feasible time_limit optimal optimal feasible "
        "time_limit infeasible time_limit"
    )
    assert [result.gap for result in known[::2]] == [0, 0.25, None, 0, float("inf"), None]
    assert ["above bound" in str(result) for result in known[::2]] == [True] * 2 + [False] * 4


def test_contradictions_are_refused() -> None:
    for plan, cost, bound, why, said in (
        ("plan", 3, 4, None, "less than the bound"),
        (None, None, None, None, "either a plan"),
        ("plan", 3, None, WHY, "either a plan"),
        ("plan", None, None, None, "objective"),
    ):
        with pytest.raises(ValueError, match=said):
            Result[str, None]("m", plan, cost, bound, 0.0, infeasibility=why)


def test_a_result_is_printed_as_a_table() -> None:
    made: Result[str, None] = Result(
        "greedy", "p" * 99, 1_500_000, 1_000_000, 0.25, warnings=("one", "two")
    )
    assert str(made).splitlines() == [
        *("status       feasible", "method       greedy", "objective    1.5 ms"),
        *("lower bound  1 ms", "above bound  50.00%", "run time     250 ms"),
        *(f"plan         '{'p' * 74}…", "warning      one", "warning      two"),
    ]
    assert repr(made) == "Result(greedy: feasible, objective_ns=1500000, lower_bound_ns=1000000)"
    none: Result[str, None] = Result("auto", None, None, None, 0.0, infeasibility=WHY)
    assert str(none).splitlines()[2:] == ["run time     0 ns", "no plan      because"]


PULLED = ibatch.Problem(startup_ns=4, transfer_ns=(3, 1, 5), compute_ns=(2, 6, 1))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_best_comes_first(family: Family[Any, Any, Any]) -> None:
    named: list[str] = []
    listed = list(family.methods)
    found = compare(NUMBERS[family.name], listed, solve=family.solve, progress=named.append)
    assert named == [f"{name} ({n} of {len(listed)})" for n, name in enumerate(listed, start=1)]
    # `auto` is one of the others, and is not told twice.
    assert len(found.rows) + len(found.left_out) == len(named) - 1
    times = [row.objective_ns for row in found.rows]
    assert times == sorted(times, key=lambda time: (time is None, time or 0))
    for row in found.rows:
        assert (row.evaluation is None) == (row.plan is None)
    result = family.solve(NUMBERS[family.name])  # it names the method that won
    assert result.method in without_auto(family.methods)
    assert result.evaluation is not None


def test_what_does_not_apply_is_left_out_and_unknown_methods_are_errors() -> None:
    """Who cancels has one plan and no more."""
    cancel = threading.Event()
    cancel.set()
    methods = ["ddp", "exact", "greedy"]
    limited = compare(PULLED, methods[:2], solve=ibatch.solve, time_limit=10)
    for found in limited, compare(PULLED, methods, solve=ibatch.solve, cancel=cancel):
        assert [row.method for row in found.rows] == ["exact"]
        ((method, reason),) = found.left_out
        assert method == "ddp"
        assert "push" in reason
    for methods in (["no_such"], ["exact", "no_such"]):
        with pytest.raises(InvalidInputError):
            compare(PULLED, methods, solve=ibatch.solve)


def test_a_method_whose_solver_is_missing_does_not_apply() -> None:
    with pytest.raises(NotApplicableError, match="a solver cannot be loaded: No module named"):
        lazy_method("planner.nowhere", "it", "a solver")(7, NEVER)
    with pytest.raises(ImportError):  # nothing but planner itself is missing
        lazy_method("planner.nowhere", "it")(7, NEVER)


def plans_priced(request: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the plans that are priced until a request's result is there, and behind that."""
    family = request["problem"]
    priced: tuple[list[Any], list[Any]] = ([], [])
    there = False

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal there
        place = frame.f_globals.get("__name__"), frame.f_code.co_name
        if event == "call" and place == (f"planner.families.{family}.evaluation", "evaluate"):
            priced[there].append(frame.f_locals["plan"])
        if event == "return" and place == ("planner.solving.family", "run"):
            there |= frame.f_locals["self"] is FAMILIES[family]

    sys.setprofile(note)
    try:
        answer = planner.solve(request)
    finally:
        sys.setprofile(None)
    assert "error" not in answer, answer
    assert there
    return priced


@pytest.mark.parametrize("family", ["ibatch", "caramel", "bml", "drizzle", "fsdp"])
def test_an_answer_says_what_its_result_knows(family: str) -> None:
    """The plan is not priced again; others are, such as other sizes of a group, or DDP's."""
    request = dict(REQUESTS[family][0])
    request.pop("layer_parameters", None)  # with names FSDP2's default is priced, too
    before, after = plans_priced(request)
    assert before
    assert before[-1] not in after
