"""Requests and answers: the contract, bad input, streams."""

import json
import resource
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.families import ibatch
from planner.jsonio import decode_answer, reply
from planner.jsonio.streams import limited_replies
from planner.jsonio.workers import Limits
from planner.model.validation import MAX_VALUE
from tests import schemas

EXAMPLE: dict[str, Any] = {
    "problem": "ibatch",
    "direction": "pull",
    "startup_ns": 4,
    "transfer_ns": [3, 1, 5],
    "compute_ns": [2, 6, 1],
    "method": "exact",
    "objective": "makespan",
}
TABLE: dict[str, Any] = {
    "problem": "ibatch",
    "layer_bytes": [10, 0, 30],
    "cost_table": [[0, 5], [10, 9], [20, 30]],
    "compute_ns": [2, 6, 1],
}


def ask(request: Any) -> dict[str, Any]:
    """Ask as JSON text; the library call must answer the same."""
    answer: dict[str, Any] = json.loads(reply(json.dumps(request).encode()).data)
    if isinstance(request, dict):
        called = planner.solve(request)
        if answer.get("status") == "time_limit":  # how far a search came is the clock's to say
            assert called.keys() == answer.keys()
        else:
            assert json.loads(json.dumps({**called, "runtime_s": 0})) == {**answer, "runtime_s": 0}
    return answer


def error(request: Any) -> tuple[str, str]:
    answer = ask(request)
    assert list(answer) == ["error"], answer
    assert answer["error"]["code"] == "invalid_request"
    return answer["error"]["path"], answer["error"]["message"]


def test_the_contracts_example() -> None:
    answer = ask(EXAMPLE)
    assert answer["problem"] == "ibatch"
    assert answer["method"] == "exact"
    assert answer["status"] == "optimal"
    assert answer["objective_ns"] == answer["lower_bound_ns"] == answer["makespan_ns"] == 18
    assert answer["batches"][0][0] == 0
    assert answer["batches"][-1][1] == 3
    assert answer["runtime_s"] >= 0
    for field in (
        "eq4_ns",
        "eq5_holds",
        "overlap_ns",
        "exposed_communication_ns",
        "exposed_computation_ns",
    ):
        assert field in answer


def test_push_batches_come_in_transfer_order() -> None:
    answer = ask({**EXAMPLE, "direction": "push", "method": "layer_by_layer"})
    assert answer["batches"] == [[2, 3], [1, 2], [0, 1]]


def test_infeasible_is_an_answer_that_names_what_binds() -> None:
    answer = ask({**EXAMPLE, "layer_bytes": [1, 20, 1], "max_batch_bytes": 10})
    assert answer["status"] == "infeasible"
    assert answer["binding"] == ["max_batch_bytes"]
    assert answer["layers"] == [1]
    assert answer["objective_ns"] is None


without = object()


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"transfer_ns": []}, "transfer_ns", "length >= 1, got one of length 0"),
        ({"transfer_ns": [1, 2, -1]}, "transfer_ns[2]", "expected an integer >= 0, got -1"),
        ({"compute_ns": [1, 2.0, 1]}, "compute_ns[1]", "expected an integer >= 0, got 2.0"),
        ({"startup_ns": True}, "startup_ns", "expected an integer >= 0, got true"),
        ({"startup_ns": "4"}, "startup_ns", "expected an integer >= 0, got '4'"),
        ({"startup_ns": float("nan")}, "startup_ns", "got NaN"),
        ({"startup_ns": float("inf")}, "startup_ns", "got Infinity"),
        ({"startup_ns": 2**64}, "startup_ns", f"<= {MAX_VALUE}"),
        ({"startup_ns": 10**4000}, "startup_ns", "bits"),
        ({"problem": without}, "problem", "missing"),
        ({"problem": "ibtach"}, "problem", "did you mean 'ibatch'"),
        ({"problem": 3}, "problem", "got 3"),
        ({"startup": 4}, "startup", "unknown field; did you mean 'startup_ns'?"),
        ({"zzz": 4}, "zzz", "unknown field; known are problem"),
        ({"direction": "pul"}, "direction", "one of pull, push, got 'pul'"),
        ({"time_limit_s": 0}, "time_limit_s", "> 0"),
        ({"time_limit_s": float("nan")}, "time_limit_s", "got NaN"),
        ({"time_limit_s": 10**400}, "time_limit_s", "expected a smaller number"),
        ({"transfer_ns": {"a": 1}}, "transfer_ns", "expected an array, got an object"),
        ({"transfer_ns": [[1], 2, 3]}, "transfer_ns[0]", "got an array"),
        ({"transfer_ns": None}, "transfer_ns", "expected an array, got null"),
        ({"a - at `$[5]": 1}, "a - at `$[5]", "unknown field"),
        ({".a[...]": 1}, ".a[...]", "unknown field"),
        ({"direction": ".a[...]"}, "direction", "one of pull, push"),
        ({"a\nb": 1}, "a\nb", "unknown field"),
        ({"direction": "x` - at `$.y"}, "direction", "one of pull, push"),
    ],
)
def test_bad_fields(change: dict[str, Any], path: str, expected: str) -> None:
    merged = {**EXAMPLE, **change}
    found_path, message = error({k: v for k, v in merged.items() if v is not without})
    assert found_path == path
    assert expected in message


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        (b"", "", "empty: expected a JSON document"),
        (b'{"problem": "ibatch"', "", "not JSON"),
        (b"\xff\xfe", "", "not UTF-8"),
        (b"[]", "", "expected an object, got an empty array"),
        (b"3", "", "expected an object"),
        (b"null", "", "expected an object, got null"),
        (b"[" * 100_000, "", "nested too deeply"),
        (b'{"a":' * 100_000, "", "nested too deeply"),
        (b"x" * 10_000_000, "", "not JSON"),
        (b'"' + b"x" * 10_000_000 + b'"', "", "expected an object"),
        (b'{"problem": "ibatch", "startup_ns": 1, "startup_ns": 2}', "startup_ns", "given twice"),
        (b'{"problem": "ibatch", "x": [{}, {"b": 1, "b": 1}]}', "x[1].b", "given twice"),
        (b'{"problem": "ibatch", "compute_ns": [1' + b"0" * 9999 + b"]}", "compute_ns[0]", "bits"),
        (b'{"problem": "ibatch", "compute_ns": [-1' + b"0" * 9999 + b"]}", "compute_ns[0]", ">= 0"),
        (b'{"problem": "ibatch", "compute_ns": [1e400]}', "compute_ns[0]", "Infinity"),
        (b'{"problem": "ibatch", "compute_ns": [NaN]}', "compute_ns[0]", "NaN"),
        (b'{"problem": "\\ud800"}', "problem", "surrogate"),
        (b'{"\\ud800": 1, "problem": "ibatch"}', "", "surrogate"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_bad_documents(data: bytes, path: str, expected: str) -> None:
    answer = reply(data)
    assert answer.exit_status == 2
    found = json.loads(answer.data)["error"]
    assert found["code"] == "invalid_request"
    assert found["path"] == path
    assert expected in found["message"]
    assert len(found["message"]) < 400


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"layer_names": ["conv", "\ud800", "fc"]}, "layer_names[1]"),
        ({"method": "\udfff"}, "method"),
        ({"layer_parameters": [{"\ud800": 1}]}, "layer_parameters[0]"),
    ],
)
def test_what_no_document_can_say_no_call_can(change: dict[str, Any], path: str) -> None:
    found = planner.solve({**EXAMPLE, **change})["error"]
    assert (found["path"], found["message"]) == (path, "not text: half of a surrogate pair")


def test_a_byte_order_mark_is_no_error() -> None:
    assert reply(b"\xef\xbb\xbf" + json.dumps(EXAMPLE).encode()).exit_status == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=500)
@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_no_bytes_make_a_fault(noise: bytes, start: int, length: int) -> None:
    good = json.dumps(EXAMPLE).encode()
    assert reply(noise).exit_status in (0, 2)
    assert reply(good[:start] + noise + good[start + length :]).exit_status in (0, 2)


@settings(max_examples=300)
@given(st.text("`$.[]- at'5xé\n", max_size=12), json_values)
def test_no_field_name_makes_a_fault(name: str, value: Any) -> None:
    for request in ({**EXAMPLE, name: value}, {**EXAMPLE, "transfer_ns": {name: value}}):
        assert reply(json.dumps(request).encode()).exit_status == 2


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

    def lines(count: int) -> Iterator[bytes]:
        for number in range(count):
            yield (
                b'{"problem": "ibatch", "startup_ns": -1}'
                if number % 10 == 9
                else json.dumps({**EXAMPLE, "startup_ns": number}).encode()
            )

    assert all(one.exit_status in (0, 2) for one in map(reply, lines(1000)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    statuses = [one.exit_status for one in map(reply, lines(5000))]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert statuses == [2 if number % 10 == 9 else 0 for number in range(5000)]
    assert after - before < 4 * 1024  # KiB; a leak of a kilobyte a request would be 5 MB


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


@pytest.mark.parametrize("direction", ["pull", "push"])
@pytest.mark.parametrize("change", [{}, {"max_batch_bytes": 1}])
def test_names_of_parameters_and_sizes_come_back(direction: str, change: dict[str, Any]) -> None:
    names = [["a.weight", "a.bias"], [], ["c.weight"]]
    request = {**TABLE, **change, "direction": direction, "layer_parameters": names}
    answer = ask(request)
    assert (answer["status"] == "infeasible") == bool(change)
    assert answer["layer_parameters"] == names
    assert answer["layer_bytes"] == TABLE["layer_bytes"]


def test_an_answer_says_nothing_the_request_did_not() -> None:
    answer = ask(EXAMPLE)
    assert not {"layer_parameters", "layer_bytes", "layer_names"} & set(answer)
    assert ask({**EXAMPLE, "layer_bytes": [1, 2, 3]})["layer_bytes"] == [1, 2, 3]
