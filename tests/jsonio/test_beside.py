"""Answers of plans beside which computation is slower: what they say, and what they are held to."""

import json
from typing import Any

import pytest

from planner.jsonio import decode_answer
from planner.programs import read_plan
from planner.runtime.measuring.measured import StepTime, compared
from tests import schemas
from tests.jsonio.test_iteration import CLUSTER, REQUEST
from tests.jsonio.test_service import error
from tests.test_programs import BIGDL, BML, solved

BESIDE = {"startup_ns": 40, "ns_per_byte": 0.5, "slowdown": 1.25}
CLUSTERED: dict[str, Any] = {**REQUEST, "cluster": {**CLUSTER, "interference": BESIDE}}
BATCHES: dict[str, Any] = {
    "problem": "ibatch",
    "layer_bytes": [100, 200, 300, 1],
    "compute_ns": [500, 600, 700, 10],
    "network": {"startup_ns": 100, "ns_per_byte": 2, "interference": BESIDE},
}


def bare(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request without interference."""
    name = "cluster" if "cluster" in request else "network"
    inner = {key: value for key, value in request[name].items() if key != "interference"}
    return {**request, name: inner}


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (CLUSTERED, {}),
        (CLUSTERED, {"modes": ["sharded"]}),
        (CLUSTERED, {"method": "ddp"}),
        (BATCHES, {}),
        (BATCHES, {"direction": "push"}),
        (BATCHES, {"direction": "push", "method": "layer_by_layer"}),
    ],
)
def test_answers_agree_with_themselves(request_: dict[str, Any], changes: dict[str, Any]) -> None:
    answer = solved(request_, **changes)
    schemas.validate({**request_, **changes}, answer["problem"], "request")
    schemas.validate(answer, answer["problem"], "answer")
    read_plan(json.dumps(answer).encode())
    _, timeline = decode_answer(json.dumps(answer).encode())
    assert timeline.intervals
    alone = solved(bare(request_), **changes)
    assert alone["objective_ns"] <= answer["objective_ns"]
    assert answer["slowed_ns"] >= 0
    assert "slowed_ns" not in alone
    assert answer["lower_bound_ns"] >= alone["lower_bound_ns"] or changes


@pytest.mark.parametrize("request_", [BIGDL, BML])
def test_families_that_do_not_count_it_refuse_it(request_: dict[str, Any]) -> None:
    network = {"startup_ns": 100, "bytes_per_s": 1e9, "interference": BESIDE}
    known = {name: value for name, value in request_.items() if name != "link_bytes_per_s"}
    path, message = error({**known, "network": network})[:2]
    assert path == "network.interference"
    assert message.startswith("only plans of caramel, ibatch and iteration")


def test_what_takes_nothing_is_not_there() -> None:
    nothing = {"cluster": {**CLUSTER, "interference": {"slowdown": 1}}}
    assert "slowed_ns" not in solved(REQUEST, **nothing)


@pytest.mark.parametrize("request_", [CLUSTERED, BATCHES])
def test_runs_are_compared_with_what_is_predicted_with_it(request_: dict[str, Any]) -> None:
    answer = solved(request_)
    read = read_plan(json.dumps(answer).encode())
    steps = [StepTime(*(10**6 for _ in StepTime._fields))] * 2
    predicted = {time.name: time.predicted_ns for time in compared([read], steps)}
    assert answer["objective_ns"] in predicted.values()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"startup_ns": -1}, "cluster.interference.startup_ns"),
        ({"ns_per_byte": -1}, "cluster.interference.ns_per_byte"),
        ({"slowdown": 0.5}, "cluster.interference.slowdown"),
        ({"slower": 2}, "cluster.interference.slower"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(change: dict[str, Any], path: str) -> None:
    request = {**REQUEST, "cluster": {**CLUSTER, "interference": change}}
    assert error(request)[0] == path
    assert not schemas.fits(request, "iteration", "request")
