"""Requests of gradient synchronisation that mean nothing: where, and what was expected."""

import time
from typing import Any

import pytest

import planner
from tests import schemas
from tests.jsonio.bml_requests import NIC, changed
from tests.jsonio.test_service import error, without

BIG = 2**62
MANY = {"servers": [[0] * 17]}


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"n": 1}, "n", "expected an integer >= 2, got 1"),
        ({"n": True}, "n", "expected an integer >= 2, got true"),
        ({"n": 3.0}, "n", "expected an integer >= 2, got 3.0"),
        ({"n": BIG + 1}, "n", f"expected an integer <= {BIG}, got {BIG + 1}"),
        ({"n": without}, "n", "missing"),
        ({"k": 0}, "k", "expected an integer >= 1, got 0"),
        ({"k": without}, "k", "missing"),
        ({"k": 64}, "k", "expected at most 2^62 NICs, k·n^k, got BCube(3, 64)"),
        ({"k": BIG}, "k", f"expected at most 2^62 NICs, k·n^k, got BCube(3, {BIG})"),
        ({"n": 2, "k": 57}, "k", "expected at most 2^62 NICs, k·n^k, got BCube(2, 57)"),
        (
            {"gradient_bytes": without},
            "gradient_bytes",
            "missing: expected it, or layer_bytes",
        ),
        ({"gradient_bytes": -1}, "gradient_bytes", "expected an integer >= 0, got -1"),
        ({"gradient_bytes": None}, "gradient_bytes", "expected an integer >= 0, got null"),
        (
            {"gradient_bytes": BIG + 1},
            "gradient_bytes",
            f"expected an integer <= {BIG}, got {BIG + 1}",
        ),
        (
            {"layer_bytes": [1, 2]},
            "gradient_bytes",
            "expected the sum of layer_bytes (3), got 12500000",
        ),
        (
            {"layer_bytes": []},
            "layer_bytes",
            "expected an array of length >= 1, got one of length 0",
        ),
        ({"layer_bytes": [1, -2]}, "layer_bytes[1]", "expected an integer >= 0, got -2"),
        (
            {"layer_bytes": [0, BIG + 1]},
            "layer_bytes[1]",
            f"expected an integer <= {BIG}, got {BIG + 1}",
        ),
        (
            {"layer_bytes": [BIG, 1], "gradient_bytes": without},
            "layer_bytes",
            f"expected a sum <= {BIG}, got {BIG + 1}",
        ),
        (
            {"layer_bytes": [1] * (2**12 + 1), "gradient_bytes": without},
            "layer_bytes",
            "expected at most 4096 layers, got 4097",
        ),
        ({"element_bytes": 0}, "element_bytes", "expected an integer >= 1, got 0"),
        (
            {"element_bytes": 3},
            "gradient_bytes",
            "expected a multiple of element_bytes (3), got 12500000",
        ),
        (
            {"element_bytes": 4, "layer_bytes": [4, 6], "gradient_bytes": without},
            "layer_bytes[1]",
            "expected a multiple of element_bytes (4), got 6",
        ),
        ({"link_bytes_per_s": 0}, "link_bytes_per_s", "expected a number > 0, got 0"),
        ({"link_bytes_per_s": -1}, "link_bytes_per_s", "expected a number > 0, got -1"),
        ({"link_bytes_per_s": "x"}, "link_bytes_per_s", "expected a number > 0, got 'x'"),
        (
            {"link_bytes_per_s": 2**63},
            "link_bytes_per_s",
            f"expected a number <= {BIG}, got {2**63}",
        ),
        ({"link_bytes_per_s": without}, "link_bytes_per_s", "missing (or network)"),
        (
            {"link_bytes_per_s": 1e-9},
            "link_bytes_per_s",
            f"the time to send the gradient must fit in 63 bits, got {125 * 10**23}",
        ),
        ({"latency_ns": -1}, "latency_ns", "expected an integer >= 0, got -1"),
        ({"latency_ns": 1.5}, "latency_ns", "expected an integer >= 0, got 1.5"),
        ({"latency_ns": BIG}, "latency_ns", "the time must fit in 63 bits, got"),
        (
            {"reduce_ns_per_byte": -0.5},
            "reduce_ns_per_byte",
            f"expected a number from 0 to {BIG}, got -0.5",
        ),
        ({"schedule": "some"}, "schedule", "expected one of all, none, got 'some'"),
        ({"schedule": 3}, "schedule", "expected a string or an object, got 3"),
        ({"schedule": {}}, "schedule.server", "missing"),
        (
            {"schedule": {"server": [0, 0], "x": 1}},
            "schedule.x",
            "unknown field; known are server",
        ),
        ({"schedule": {"server": [0]}}, "schedule.server", "expected 2 digits, got 1"),
        ({"schedule": {"server": "00"}}, "schedule.server", "expected an array, got '00'"),
        (
            {"schedule": {"server": [0, 3]}},
            "schedule.server[1]",
            "expected an integer <= 2, got 3",
        ),
        (
            {"schedule": {"server": [-1, 0]}},
            "schedule.server[0]",
            "expected an integer >= 0, got -1",
        ),
        (
            {"schedule": {"server": [1, 1]}, "failed": {"servers": [[1, 1]]}},
            "schedule.server",
            "expected one that has not failed",
        ),
        ({"failed": []}, "failed", "expected an object, got an empty array"),
        (
            {"failed": {"server": []}},
            "failed.server",
            "unknown field; did you mean 'servers'?",
        ),
        ({"failed": {"servers": [[0]]}}, "failed.servers[0]", "expected 2 digits, got 1"),
        (
            {"failed": {"servers": [[0, 0], [0, 3]]}},
            "failed.servers[1][1]",
            "expected an integer <= 2, got 3",
        ),
        (
            {"failed": {"nics": [[[0, 0], 2]]}},
            "failed.nics[0][1]",
            "expected an integer <= 1, got 2",
        ),
        (
            {"failed": {"nics": [[[0, 0], 0], [[0, 5], 1]]}},
            "failed.nics[1][0][1]",
            "expected an integer <= 2, got 5",
        ),
        (
            {"failed": {"nics": [[[0, 0, 0], 1]]}},
            "failed.nics[0][0]",
            "expected 2 digits, got 3",
        ),
        (
            {"failed": {"nics": [[[0, 0]]]}},
            "failed.nics[0]",
            "expected an array of length 2, got one of length 1",
        ),
        (
            {"failed": {**NIC, "links": [[[0, 0], 1], [[0, 1], 2]]}},
            "failed.links[1][1]",
            "expected an integer <= 1, got 2",
        ),
        (
            {"failed": {"links": [[[3, 0], 1]]}},
            "failed.links[0][0][0]",
            "expected an integer <= 2, got 3",
        ),
        (
            {"failed": {"switches": [[2, [0]]]}},
            "failed.switches[0][0]",
            "expected an integer <= 1, got 2",
        ),
        (
            {"failed": {"switches": [[0, [3]]]}},
            "failed.switches[0][1][0]",
            "expected an integer <= 2, got 3",
        ),
        (
            {"failed": {"switches": [[0, [0]], [0, [0, 0]]]}},
            "failed.switches[1][1]",
            "expected 1 digits, got 2",
        ),
        (
            {"n": 2, "k": 17, "failed": MANY},
            "failed",
            "expected a network of at most 1048576 NICs where something has failed, got 2228224",
        ),
        (
            {"gradient_bytes": BIG, "failed": NIC},
            "gradient_bytes",
            "what all servers send together where something has failed must fit in 63 bits, got",
        ),
        (
            {"method": "bmll"},
            "method",
            "expected one of auto, bml, detour, trees, got 'bmll' (did you mean 'bml'?)",
        ),
        (
            {"method": "bml", "failed": NIC},
            "method",
            "bml is Algorithm 1, which knows no failures",
        ),
        ({"time_limit_s": 0}, "time_limit_s", "expected a number > 0, got 0"),
        ({"note": 3}, "note", "expected a string, got 3"),
        ({"gradient": 1}, "gradient", "unknown field; did you mean 'gradient_bytes'?"),
    ],
)
def test_bad_requests(change: dict[str, Any], path: str, expected: str) -> None:
    found = error(changed(**change))
    assert found[0] == path
    assert found[1] == expected or (expected.endswith("got") and found[1].startswith(expected))


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2, "k": 24, "gradient_bytes": 3, "schedule": "all"},
        {"n": 2**20, "k": 2, "schedule": {"server": [0, 0]}},
        {"n": 2, "k": 40, "schedule": "all", "gradient_bytes": 0, "layer_bytes": [0] * 9 + [3]},
    ],
)
def test_more_transfers_than_are_looked_at_are_refused_before_there_is_a_plan(
    change: dict[str, Any],
) -> None:
    request = {"problem": "bml", "gradient_bytes": 10**9, "link_bytes_per_s": 1e9, **change}
    if "layer_bytes" in request:
        del request["gradient_bytes"]
    begin = time.process_time()
    path, message = error(request)
    assert time.process_time() - begin < 1
    assert path == "schedule"
    assert "at most 1000000 transfers" in message


def test_a_request_without_a_plan_in_its_time_says_so() -> None:
    """So much damage to look at takes seconds."""
    request = {
        "problem": "bml",
        "n": 2,
        "k": 16,
        "gradient_bytes": 10**6,
        "link_bytes_per_s": 1e9,
        "failed": {"servers": [[0] * 15 + [1]]},
        "time_limit_s": 0.001,
    }
    answer = planner.solve(request)
    assert answer["status"] == "time_limit"
    if answer["objective_ns"] is None:
        assert answer["binding"] == ["time_limit_s"]
        assert "time limit" in answer["reason"]
        assert "transfers" not in answer
    schemas.validate(answer, "bml", "answer")


def test_a_gradient_without_bytes_has_no_transfers_however_many_servers_there_are() -> None:
    request = {
        "problem": "bml",
        "n": 2**62,
        "k": 1,
        "gradient_bytes": 0,
        "link_bytes_per_s": 1e9,
        "schedule": "all",
    }
    begin = time.process_time()
    assert planner.solve(request)["transfers"] == []
    assert time.process_time() - begin < 5
