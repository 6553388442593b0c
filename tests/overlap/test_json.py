"""Requests and answers of compiled graphs."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from planner.families.overlap import Problem
from planner.jsonio.overlap import encode_request
from planner.jsonio.service import decode_answer, decode_request, reply, solve_or_raise
from planner.model.errors import InvalidInputError
from planner.testing import problems
from tests.overlap.test_problem import PROBLEM
from tests.timelines import check_serial


def request(problem: Problem = PROBLEM, **more: Any) -> dict[str, Any]:
    return {**msgspec.json.decode(encode_request(problem)), **more}


@settings(max_examples=60, deadline=None)
@given(problems("overlap"))
def test_a_request_is_its_problem_and_an_answer_is_read_again(problem: Problem) -> None:
    assert decode_request(encode_request(problem)).to_problem() == problem
    roomy = replace(problem, memory_limit_bytes=None)
    data = reply(encode_request(roomy).encode()).data
    answer, timeline = decode_answer(data)
    check_serial(timeline)
    assert timeline.end_ns == answer.objective_ns
    assert answer.exposed_ns <= answer.own_order_exposed_ns


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("objective_ns", 37),
        ("exposed_ns", 1),
        ("own_order_exposed_ns", 1),
        ("computation_ns", 1),
        ("peak_bytes", 1),
        ("transfers", []),
        ("order", [1, 0, 2, 3, 4, 5]),
        ("merged", [[0, 1], [0, 1]]),
        ("memory_limit_bytes", 32),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused(field: str, value: Any) -> None:
    answer = solve_or_raise(request(method="search"))
    decode_answer(msgspec.json.encode(answer))
    answer[field] = value
    with pytest.raises(InvalidInputError):
        decode_answer(msgspec.json.encode(answer))
