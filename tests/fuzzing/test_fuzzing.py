"""A few of the generated requests, the same ones each time; and that what is wrong is found."""

import json
from typing import Any

import pytest

from planner import ibatch
from planner.workers import Limits
from tests.fuzzing.running import findings, requests
from tests.fuzzing.valid import MAKERS

COUNTS = {"bml": 50, "caramel": 50, "ibatch": 80, "iteration": 30, "yan": 30}
"""Fewer of what takes long."""


@pytest.mark.slow
@pytest.mark.parametrize("problem", MAKERS)
def test_a_few_requests(problem: str) -> None:
    count = COUNTS.get(problem, 120)
    found = [
        finding
        for finding in findings(problem, count, 0, Limits(seconds=20))
        if finding is not None
    ]
    # The time of a slow machine is no finding here.
    assert [one for one in found if one.kind != "time"] == []


def test_requests_depend_on_the_seed_and_their_number_alone() -> None:
    for problem in MAKERS:
        few = [request.data for request in requests(problem, 5, 1)]
        assert few == [request.data for request in requests(problem, 5, 1)]
        assert few[3:] == [request.data for request in requests(problem, 2, 1, start=3)]
        assert few != [request.data for request in requests(problem, 5, 2)]


def test_many_requests_are_valid_and_many_are_not() -> None:
    for problem in MAKERS:
        good = 0
        for request in requests(problem, 40, 1):
            try:
                good += json.loads(request.data)["problem"] == problem
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
        assert good >= 20


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(ZeroDivisionError, "internal"), (MemoryError, "memory_bytes"), (None, "schema")],
)
def test_what_is_wrong_is_found(
    fault: type[Exception] | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ibatch.solve

    def broken(*given: Any, **options: Any) -> Any:
        if fault:
            raise fault
        result = real(*given, **options)
        object.__setattr__(result, "runtime_s", "soon")
        return result

    monkeypatch.setattr("planner.ibatch.solve", broken)
    kinds = {finding.kind for finding in findings("ibatch", 30, 0, Limits()) if finding is not None}
    assert kinds == {kind}
