"""The service: ids come back, and whatever happens to one request is not felt by the next."""

import json
import resource
from collections.abc import Iterator
from typing import Any

import pytest

import planner
from planner.families import ibatch
from planner.jsonio import decode_answer, reply
from planner.jsonio.streams import limited_replies
from planner.jsonio.workers import Limits
from tests import schemas
from tests.jsonio.asking import ask
from tests.jsonio.requests import BASES

EXAMPLE = BASES["ibatch"]


def both(request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answers to a request as JSON text, and as a library call."""
    return json.loads(reply(json.dumps(request).encode()).data), planner.solve(request)


@pytest.mark.parametrize("known", ["job 7", "", 0, -(2**63), 2**63 - 1])
def test_an_id_comes_back(known: str | int) -> None:
    request = {**EXAMPLE, "id": known}
    for part, asked in (("answer", request), ("error", {**request, "startup_ns": -1})):
        for answer in both(asked):
            assert answer["id"] == known
            schemas.validate(answer, "ibatch", part)
    decode_answer(json.dumps(ask(request)))


@pytest.mark.parametrize("known", [None, True, 1.5, [1], {"a": 1}, 2**63, "\ud800"])
def test_what_is_no_id_is_refused(known: Any) -> None:
    for answer in both({**EXAMPLE, "id": known}):
        assert answer["error"]["path"] == "id"
        assert "id" not in answer


def test_the_id_of_a_request_over_a_limit_comes_back() -> None:
    request = json.dumps({**EXAMPLE, "id": "long", "progress": True}).encode()
    told: list[bytes] = []
    (answer,) = limited_replies([request], Limits(), told.append)
    (refused,) = limited_replies([request], Limits(request_bytes=10), told.append)
    assert json.loads(answer.data)["id"] == json.loads(refused.data)["id"] == "long"
    assert json.loads(refused.data)["error"]["code"] == "limit_exceeded"
    assert {json.loads(line)["progress"]["id"] for line in told} == {"long"}


def test_a_byte_order_mark_is_no_error() -> None:
    assert reply(b"\xef\xbb\xbf" + json.dumps(EXAMPLE).encode()).exit_status == 0


def test_a_fault_of_one_request_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problem: ibatch.Problem, _: object) -> None:
        raise ZeroDivisionError

    methods = {**ibatch.METHODS, "greedy": broken}
    monkeypatch.setitem(vars(ibatch.IBATCH), "methods", methods)
    lines = [json.dumps({**EXAMPLE, "method": m}).encode() for m in ("exact", "greedy", "exact")]
    replies = list(map(reply, lines))
    assert [one.exit_status for one in replies] == [0, 1, 0]
    assert json.loads(replies[1].data)["error"]["code"] == "internal_error"
    assert isinstance(replies[1].fault, ZeroDivisionError)


@pytest.mark.slow
def test_thousands_of_requests_in_one_process_leak_nothing() -> None:
    """Every tenth line is bad; memory at the end is that of the first thousand."""

    def statuses(count: int) -> Iterator[int]:
        for number in range(count):
            startup = -1 if number % 10 == 9 else number
            yield reply(json.dumps({**EXAMPLE, "startup_ns": startup}).encode()).exit_status

    assert {*statuses(1000)} == {0, 2}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = list(statuses(5000))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert found == [2 if number % 10 == 9 else 0 for number in range(5000)]
    assert after - before < 4 * 1024  # KiB; a leak of a kilobyte a request would be 5 MB
