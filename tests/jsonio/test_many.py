"""Many requests on an executor have the answers that each has by itself."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import planner
from planner.jsonio.streams import solve_many
from planner.model.errors import InvalidInputError
from tests.jsonio.test_plan_files import METHODS as REQUESTS


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what differs from run to run."""
    return {name: value for name, value in answer.items() if name != "runtime_s"}


def test_answers_of_all_problems_in_order() -> None:
    requests = [REQUESTS[problem][0] for problem in REQUESTS] + [{"problem": "ibatch"}]
    alone = [told(planner.solve(request)) for request in requests]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        answers = list(planner.solve_many(requests, pool, ahead=3))
    assert [told(answer) for answer in answers] == alone
    assert answers[-1]["error"]["path"] == "compute_ns"


def test_requests_are_read_a_bounded_number_ahead() -> None:
    read = 0

    def requests() -> Iterator[dict[str, Any]]:
        nonlocal read
        for _ in range(10):
            read += 1
            yield {"problem": "ibatch"}

    with ThreadPoolExecutor(1) as pool:
        answers = solve_many(requests(), pool, ahead=2)
        next(answers)
        assert read == 2
        next(answers)
        assert read == 3
        assert len(list(answers)) == 8
        assert list(solve_many([], pool)) == []
        with pytest.raises(InvalidInputError, match="ahead"):
            list(solve_many([], pool, ahead=0))
