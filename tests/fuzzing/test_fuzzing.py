"""A few of the generated requests, the same ones each time; and that what is wrong is found."""

import json
from typing import Any

import pytest

import planner
from planner.families import ibatch
from planner.jsonio.workers import Limits
from tests.fuzzing.oddities import whole
from tests.fuzzing.running import SLOW, findings, requests, wrong
from tests.fuzzing.valid import MAKERS

COUNTS = {"bml": 50, "caramel": 50, "ibatch": 80, "iteration": 30, "yan": 30}
"""Fewer of what takes long."""


@pytest.mark.slow
@pytest.mark.parametrize("problem", MAKERS)
def test_a_few_requests(problem: str) -> None:
    found = findings(problem, COUNTS.get(problem, 120), 1, Limits(seconds=20))
    # The time of a slow machine is no finding here.
    assert [one for one in found if one.fault.kind not in ("time", SLOW)] == []


def test_requests_depend_on_the_seed_and_their_number_alone() -> None:
    for problem in ("ibatch", "iteration"):
        few = [request.data for request in requests(problem, 5, 1)]
        assert few == [request.data for request in requests(problem, 5, 1)]
        assert few[3:] == [request.data for request in requests(problem, 2, 1, start=3)]
        assert few != [request.data for request in requests(problem, 5, 2)]


@pytest.mark.parametrize("problem", MAKERS)
def test_every_option_is_asked_for(problem: str) -> None:
    rules = whole(problem)
    options = set(rules["$defs"][rules["$ref"].rpartition("/")[2]]["properties"])
    cancelled, left = 0, options
    for number, asked in enumerate(requests(problem, 3000, 3)):
        left = left - set(asked.value)
        cancelled += asked.cancel_s is not None
        if not left and cancelled and number >= 100:
            break
    assert not left
    assert cancelled


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"status": "optimal", "lower_bound_ns": 9}, "contradiction"),
        ({"status": "feasible", "lower_bound_ns": 10}, "contradiction"),
        ({"status": "feasible", "lower_bound_ns": 11}, "contradiction"),
        ({"status": "infeasible", "lower_bound_ns": None}, "contradiction"),
        ({"status": "best", "lower_bound_ns": None}, "schema"),
        ({"status": "feasible", "lower_bound_ns": 9, "batches": [[0, 2]]}, "read again"),
    ],
)
def test_answers_that_contradict_themselves_are_found(answer: dict[str, Any], kind: str) -> None:
    right = planner.solve(
        {"problem": "ibatch", "startup_ns": 1, "transfer_ns": [9], "compute_ns": [0]}
    )
    assert right["objective_ns"] == 10
    assert wrong("ibatch", json.dumps(right).encode(), thorough=True) is None
    found = wrong("ibatch", json.dumps(right | answer).encode(), thorough=True)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(ZeroDivisionError, "internal"), (MemoryError, "memory_bytes"), (None, "schema")],
)
def test_what_is_wrong_is_found(
    fault: type[Exception] | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ibatch.IBATCH.solve

    def broken(*given: Any, **options: Any) -> Any:
        if fault:
            raise fault
        result = real(*given, **options)
        object.__setattr__(result, "runtime_s", "soon")
        return result

    monkeypatch.setattr(ibatch.IBATCH, "solve", broken)
    assert {finding.fault.kind for finding in findings("ibatch", 30, 0, Limits())} == {kind}
