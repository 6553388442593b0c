"""Requests for gradient plans that mean nothing: where, and what was expected."""

from typing import Any

import pytest

from planner.model.validation import MAX_VALUE
from tests import schemas
from tests.jsonio.test_caramel import (
    CHAIN,
    TABLE,
    chain,
    changed,
    validate,
)
from tests.jsonio.test_service import ask, error, without


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"ops": without}, "ops", "missing"),
        ({"ops": []}, "ops", "length >= 1"),
        ({"parameters": []}, "parameters", "length >= 1"),
        ({"network": without}, "network", "missing"),
        ({"network": 3}, "network", "expected an object, got 3"),
        ({"metod": "auto"}, "metod", "did you mean 'method'?"),
        ({"method": "caramell"}, "method", "did you mean 'caramel'?"),
        ({"stages": {"batchin": True}}, "stages.batchin", "did you mean 'batching'?"),
        ({"stages": {"batching": 1}}, "stages.batching", "true or false"),
        ({"threshold_bytes": -1}, "threshold_bytes", ">= 0"),
        ({"element_bytes": 0}, "element_bytes", ">= 1"),
        ({"workers": 0}, "workers", ">= 1"),
        ({"workers": 2**16 + 1}, "workers", "<= 65536"),
        ({"workers": 2, "servers": 3}, "servers", "at most as many as workers (2), got 3"),
        ({"seed": -1}, "seed", ">= 0"),
        ({"time_limit_s": 0}, "time_limit_s", "> 0"),
        ({"workers": 1, "method": "ps"}, "workers", "at least 2"),
        ({"op_order": ["b2", "b1", "b0", "f1", "fx"]}, "op_order[4]", "no op is called 'fx'"),
        ({"op_order": ["b2", "b1", "b0", "f1"]}, "op_order", "'f2' is missing"),
        ({"op_order": ["b1", "b2", "b0", "f1", "f2"]}, "op_order[0]", "'b1' comes before 'b2'"),
        ({"op_order": ["b2", "b2", "b0", "f1", "f2"]}, "op_order[1]", "'b2' given twice"),
        ({"op_order": "b2"}, "op_order", "expected an array"),
        ({"network": {"startup_ns": MAX_VALUE, "ns_per_byte": 1}}, "network", "63 bits"),
    ],
)
def test_bad_fields(change: dict[str, Any], path: str, expected: str) -> None:
    found_path, message = error(chain(**change))
    assert found_path == path
    assert expected in message


@pytest.mark.parametrize(
    ("field", "place", "change", "path", "expected"),
    [
        ("ops", 1, {"after": ["f1", "f2"]}, "ops[1].after", "form a cycle: f2 -> f2"),
        ("ops", 1, {"ns": without}, "ops[1].ns", "missing"),
        ("ops", 1, {"ns": -1}, "ops[1].ns", ">= 0, got -1"),
        ("ops", 1, {"ns": 1.5}, "ops[1].ns", "got 1.5"),
        ("ops", 1, {"ns": MAX_VALUE + 1}, "ops[1].ns", "<="),
        ("ops", 1, {"pass": "sideways"}, "ops[1].pass", "one of backward, forward"),
        ("ops", 1, {"afer": []}, "ops[1].afer", "did you mean 'after'?"),
        ("parameters", 1, {"updated_by": "f1"}, "parameters[1].updated_by", "backward op"),
        ("parameters", 1, {"read_by": "b1"}, "parameters[1].read_by", "forward op"),
        ("parameters", 1, {"read_by": ["f1", "b1"]}, "parameters[1].read_by[1]", "forward op"),
        ("parameters", 1, {"updated_by": "b9"}, "parameters[1].updated_by", "no op is called"),
        ("parameters", 0, {"read_by": ["f1", "f9"]}, "parameters[0].read_by[1]", "no op is"),
        ("parameters", 0, {"read_by": []}, "parameters[0].read_by", "length >= 1"),
        ("parameters", 1, {"bytes": 0}, "parameters[1].bytes", ">= 1, got 0"),
        ("parameters", 1, {"read_by": without}, "parameters[1].read_by", "missing"),
    ],
)
def test_bad_graphs(
    field: str, place: int, change: dict[str, Any], path: str, expected: str
) -> None:
    found_path, message = error(changed(field, place, **change))
    assert found_path == path
    assert expected in message


AFFINE = CHAIN["network"]


@pytest.mark.parametrize(
    ("network", "path", "expected"),
    [
        ({}, "network.startup_ns", "missing; or give a table"),
        ({"startup_ns": 5}, "network.ns_per_byte", "missing"),
        ({"ns_per_byte": 5}, "network.startup_ns", "missing"),
        (
            {**AFFINE, "ns_per_byte": -0.5},
            "network.ns_per_byte",
            "904, got -0.5",
        ),
        (
            {**AFFINE, "ns_per_byte": -1},
            "network.ns_per_byte",
            "904, got -1",
        ),
        ({**AFFINE, "ns_per_byte": float("nan")}, "network.ns_per_byte", "got NaN"),
        ({**AFFINE, "ns_per_byte": float("inf")}, "network.ns_per_byte", "got Infinity"),
        ({**AFFINE, "ns_per_byte": 1e300}, "network.ns_per_byte", "from 0 to"),
        ({**AFFINE, "ns_per_byte": 10**400}, "network.ns_per_byte", "from 0 to"),
        (
            {**AFFINE, "ns_per_byte": "1"},
            "network.ns_per_byte",
            "904, got '1'",
        ),
        ({**AFFINE, "startup_ns": 1.5}, "network.startup_ns", "got 1.5"),
        ({**AFFINE, "startup": 1}, "network.startup", "did you mean 'startup_ns'?"),
        ({"table": []}, "network.table", "length >= 2"),
        ({"table": [[0, 1]]}, "network.table", "length >= 2"),
        ({"table": [[0, 1], [0, 2]]}, "network.table[1][0]", "> 0"),
        ({"table": [[0, 1], [1, -2]]}, "network.table[1][1]", ">= 0"),
        ({"table": [[0, 9], [1, 2]]}, "network.table[1][1]", ">= 9"),
        ({"table": [[0, 1], [1]]}, "network.table[1]", "length 2"),
        ({**AFFINE, **TABLE}, "network.startup_ns", "not together with table"),
        ({"ns_per_byte": 1, **TABLE}, "network.ns_per_byte", "not together with table"),
        ({"depths": {}}, "network.depths", "length >= 1"),
        ({"depths": {"2": AFFINE}}, "network.depths.1", "missing"),
        ({**AFFINE, "depths": {"1": TABLE}}, "network.depths.1", "not the cost given beside"),
        ({**AFFINE, "depths": {"65": AFFINE}}, "network.depths.65", "from 1 to 64"),
        ({**AFFINE, "depths": {"0": AFFINE}}, "network.depths.0", "from 1 to 64"),
        ({**AFFINE, "depths": {"08": AFFINE}}, "network.depths.08", "from 1 to 64"),
        ({**AFFINE, "depths": {"٣": AFFINE}}, "network.depths.٣", "from 1 to 64"),
        ({**AFFINE, "depths": {"2\n": AFFINE}}, "network.depths.2\n", "from 1 to 64"),
        ({**AFFINE, "depths": {"deep": AFFINE}}, "network.depths.deep", "from 1 to 64"),
        (
            {**AFFINE, "depths": {"1.5": {"startup_ns": "x"}}},
            "network.depths.1.5.startup_ns",
            "'x'",
        ),
        ({**AFFINE, "depths": {"8": {"startup_ns": -1}}}, "network.depths.8.startup_ns", ">= 0"),
        ({**AFFINE, "depths": {"8": {"startup_ns": 1}}}, "network.depths.8.ns_per_byte", "missing"),
        ({**AFFINE, "depths": {"2": AFFINE, "8": 5}}, "network.depths.8", "got 5"),
        ({**AFFINE, "depths": {"8": {"tabel": 1}}}, "network.depths.8.tabel", "mean 'table'?"),
        (
            {**AFFINE, "depths": {"8": {"table": [[0, 2], [9, 1]]}}},
            "network.depths.8.table[1][1]",
            ">= 2",
        ),
    ],
)
def test_bad_networks(network: Any, path: str, expected: str) -> None:
    found_path, message = error(chain(network=network))
    assert found_path == path
    assert expected in message


@pytest.mark.parametrize(
    "change",
    [
        {"problem": without},
        {"ops": []},
        {"network": {**AFFINE, "depths": {}}},
        {"stages": {"batchin": True}},
        {"workers": 0},
        {"unknown": 1},
    ],
)
def test_the_schema_refuses_what_is_refused(change: dict[str, Any]) -> None:
    request = chain(**change)
    answer = ask(request)
    validate(answer, "error")
    with pytest.raises(schemas.ValidationError):
        validate(request, "request")
