"""Answers read back and drawn, and values at the edge of what JSON can say."""

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import planner
from planner.jsonio import decode_answer, reply
from planner.jsonio.streams import limited_replies
from planner.jsonio.workers import Limits
from tests import schemas
from tests.jsonio.test_service import EXAMPLE, ask, error, without


def test_answers_can_be_read_back() -> None:
    answer, timeline = decode_answer(reply(json.dumps(EXAMPLE).encode()).data)
    assert timeline.end_ns == answer.makespan_ns
    assert timeline.resources == ("communication", "computation")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"error": {}}, "error"),
        ({"status": without}, "status"),
        ({"schedule": without}, "schedule"),
        ({"status": "great"}, "status"),
        ({"schedule": [{"layers": [0, 1]}]}, "schedule[0].transfer_start_ns"),
    ],
)
def test_what_is_no_plan_is_refused(change: dict[str, Any], path: str) -> None:
    merged = {**planner.solve(EXAMPLE), **change}
    text = json.dumps({k: v for k, v in merged.items() if v is not without}).encode()
    with pytest.raises(planner.InvalidInputError) as caught:
        decode_answer(text)
    assert caught.value.path == path


def test_values_json_does_not_have_are_refused() -> None:
    answer = planner.solve({**EXAMPLE, "transfer_ns": {3, 1, 5}})
    assert answer["error"]["path"] == "transfer_ns"
    answer = planner.solve({**EXAMPLE, 3: 4})  # type: ignore[dict-item]
    assert "keys" in answer["error"]["message"]
    assert planner.solve(MappingProxyType(EXAMPLE))["status"] == "optimal"
    assert planner.solve({**EXAMPLE, "transfer_ns": (3, 1, 5)})["status"] == "optimal"


@pytest.mark.parametrize("known", ["job 7", "", 0, -(2**63), 2**63 - 1])
def test_an_id_comes_back(known: str | int) -> None:
    request = {**EXAMPLE, "id": known}
    assert ask(request)["id"] == planner.solve(request)["id"] == known
    wrong = {**request, "startup_ns": -1}
    assert json.loads(reply(json.dumps(wrong).encode()).data)["id"] == known
    assert planner.solve(wrong)["id"] == known
    schemas.validate(planner.solve(request), "ibatch", "answer")
    schemas.validate(planner.solve(wrong), "ibatch", "error")
    decode_answer(json.dumps(ask(request)))


@pytest.mark.parametrize("known", [None, True, 1.5, [1], {"a": 1}, 2**63, "\ud800"])
def test_what_is_no_id_is_refused(known: Any) -> None:
    request = {**EXAMPLE, "id": known}
    for answer in (json.loads(reply(json.dumps(request).encode()).data), planner.solve(request)):
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


def test_answers_at_the_edge_of_the_range_fit_their_schema_and_can_be_read_back() -> None:
    request = {
        "problem": "ibatch",
        "startup_ns": 2**62,
        "transfer_ns": [2**62 - 2],
        "compute_ns": [0],
    }
    for objective in ("makespan", "eq4"):
        answer = ask({**request, "objective": objective})
        assert answer["objective_ns"] == 2**63 - 2
        assert answer["status"] == "optimal"
        schemas.validate(answer, "ibatch", "answer")
        decode_answer(json.dumps(answer).encode())
    assert error({**request, "transfer_ns": [2**62 - 1]})[0] == "startup_ns"


@pytest.mark.parametrize(
    "change",
    [
        {"problem": without},
        {"startup_ns": None},
        {"compute_ns": without},
        {"unknown": 1},
    ],
)
def test_the_schema_refuses_what_is_refused(change: dict[str, Any]) -> None:
    merged = {k: v for k, v in {**EXAMPLE, **change}.items() if v is not without}
    assert "error" in ask(merged)
    with pytest.raises(schemas.ValidationError):
        schemas.validate(merged, "ibatch", "request")


def test_a_rule_that_does_not_apply_is_refused_before_the_cap_is_looked_at() -> None:
    path, _ = error({**EXAMPLE, "method": "ddp", "layer_bytes": [9, 9, 9], "max_batch_bytes": 1})
    assert path == "method"


@pytest.mark.parametrize(
    "change",
    [
        {"makespan_ns": 10**400},
        {"lower_bound_ns": 10**400},
        {"makespan_ns": -5},
        {"method": "$^$"},
        {"layer_names": ["a", "b", "$^$"]},
    ],
)
def test_strange_plans_are_drawn_or_refused(change: dict[str, Any], tmp_path: Path) -> None:
    from planner.cli import main

    merged = {**planner.solve(EXAMPLE), **change}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(merged))
    for output in ([], ["-o", str(tmp_path / "plan.json.gz")]):
        refused = any(isinstance(value, int) for value in change.values())
        assert main(["draw", str(path), *output]) == (2 if refused else 0)


def test_an_impossible_schedule_is_refused() -> None:
    answer = planner.solve({**EXAMPLE, "method": "layer_by_layer"})
    answer["schedule"][1]["transfer_start_ns"] = 0
    with pytest.raises(
        planner.InvalidInputError,
        match=r"schedule\[1\].transfer_start_ns: expected an integer >= 7, got 0",
    ):
        decode_answer(json.dumps(answer).encode())
