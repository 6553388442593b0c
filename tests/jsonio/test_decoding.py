"""Documents that no schema foresees: odd numbers, texts, keys and shapes are refused, or read."""

import json
import time
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest

import planner
from planner.jsonio import reply
from planner.jsonio.decoding import decode
from planner.model.errors import InvalidInputError
from planner.model.validation import closest
from tests.formats.refused import refused
from tests.jsonio.requests import BASES, patched, told

EXAMPLE, CARAMEL = BASES["ibatch"], BASES["one"]
FIELDS = ("time_limit_s", "startup_ns", "method", "layer_names", "max_batch_bytes", "zzz")
HUGE, TINY = "1E1000000000000000000000", "1e-9999999999999999999"
DEPTHS = {str(number): CARAMEL["network"] for number in range(20_000)}
MANY_KEYS = patched(CARAMEL, {"network.depths": {**DEPTHS, "7": {"startup_ns": -1}}})


def with_field(name: str, written: str) -> bytes:
    return json.dumps(told(EXAMPLE, name))[:-1].encode() + f', "{name}": {written}}}'.encode()


def refusal(data: bytes) -> tuple[str, str]:
    answer = reply(data)
    found = json.loads(answer.data)["error"]
    assert (answer.exit_status, found["code"]) == (2, "invalid_request"), found
    assert len(found["message"]) < 400
    return found["path"], found["message"]


def called(request: Any) -> dict[str, Any]:
    error: dict[str, Any] = planner.solve(request)["error"]
    return error


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        (b"", "", "empty: expected a JSON document"),
        (b'{"problem": "ibatch"', "", "not JSON"),
        (b"\xff\xfe", "", "not UTF-8"),
        (b"[]", "", "expected an object, got an empty array"),
        (b"null", "", "expected an object, got null"),
        (b"[" * 100_000, "", "nested too deeply"),
        (b"x" * 10_000_000, "", "not JSON"),
        (b'{"problem": "ibatch", "startup_ns": 1, "startup_ns": 2}', "startup_ns", "given twice"),
        (b'{"problem": "ibatch", "x": [{}, {"b": 1, "b": 1}]}', "x[1].b", "given twice"),
        (with_field("compute_ns", f"[1{'0' * 9999}]"), "compute_ns[0]", "bits"),
        (with_field("time_limit_s", f"1{'0' * 400}"), "time_limit_s", "expected a smaller number"),
        (with_field("compute_ns", "[1e400]"), "compute_ns[0]", "Infinity"),
        (with_field("compute_ns", "[NaN]"), "compute_ns[0]", "NaN"),
        (with_field("a - at `$[5]", "1"), "a - at `$[5]", "unknown field"),
        (with_field("a\\nb", "1"), "a\nb", "unknown field"),
        (b'{"problem": "\\ud800"}', "problem", "surrogate"),
        (b'{"\\ud800": 1, "problem": "ibatch"}', "", "surrogate"),
        (json.dumps(MANY_KEYS).encode(), "network.depths.7.startup_ns", ""),
        *(
            (with_field(field, sign + number), field, "")
            for field in FIELDS
            for number in (HUGE, TINY, "0e99999999999999999999")
            for sign in ("", "-")
        ),
        *(
            (json.dumps(CARAMEL).replace("0.8", number).encode(), "network.ns_per_byte", "charac")
            for number in (f"0.{'3' * 10**6}", f"{'3' * 10**6}.5", f"1.{'0' * 10**6}e5")
        ),
    ],
    ids=lambda value: value[-40:] if isinstance(value, bytes) else None,
)
def test_bad_documents_are_refused_at_once(data: bytes, path: str, expected: str) -> None:
    begin = time.process_time()
    found, message = refusal(data)
    assert time.process_time() - begin < 2
    assert found == path
    assert expected in message


@pytest.mark.parametrize("container", [list, dict])
def test_what_is_deep_or_holds_itself_is_refused(container: type) -> None:
    def around(inner: Any, times: int = 1) -> Any:
        for _ in range(times):
            inner = [inner] if container is list else {"a": inner}
        return inner

    itself = around(0)
    itself[0 if container is list else "a"] = itself
    for value in (around(0, 100_000), itself):
        assert "nested too deeply" in called({**EXAMPLE, "x": value})["message"]
    ninety = {**EXAMPLE, "x": around(0, 90)}
    assert called(ninety)["path"] == refusal(json.dumps(ninety).encode())[0] == "x"


LONG = "ab" * 100_000


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"layer_names": ["conv", "\ud800", "fc"]}, "layer_names[1]", "half of a surrogate pair"),
        ({"method": "\udfff"}, "method", "not text: half of a surrogate pair"),
        ({"layer_parameters": [{"\ud800": 1}]}, "layer_parameters[0]", "half of a surrogate pair"),
        ({"transfer_ns": {3, 1, 5}}, "transfer_ns", ""),
        ({3: 4}, "", "keys"),
        *(
            (change, path, "")
            for value in map(Decimal, ("NaN", "sNaN", "-Infinity", "1E-5000"))
            for change, path in (
                ({"time_limit_s": value}, "time_limit_s"),
                ({"startup_ns": value}, "startup_ns"),
                (patched(CARAMEL, {"network.ns_per_byte": value}), "network.ns_per_byte"),
            )
        ),
        *(
            (change, None, "")  # what is misspelt is named in part
            for change in (
                {LONG: 1},
                {"method": LONG},
                {"problem": LONG},
                patched(CARAMEL, {"parameters[0].read_by": LONG}),
                {"x": [{LONG: {LONG: {"y": "\ud800"}}}]},
            )
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_no_document_can_say_no_call_can_and_it_is_refused_at_once(
    change: dict[Any, Any], path: str | None, expected: str
) -> None:
    begin = time.process_time()
    error = called(change if "ops" in change else {**EXAMPLE, **change})
    assert time.process_time() - begin < 1
    assert len(error["path"]) + len(error["message"]) < 1000
    assert path in (error["path"], None)
    assert expected in error["message"]


def test_other_types_of_python_are_read() -> None:
    assert planner.solve(MappingProxyType(EXAMPLE))["status"] == "optimal"
    assert planner.solve({**EXAMPLE, "transfer_ns": (3, 1, 5)})["status"] == "optimal"


def test_the_closest_name_is_found_among_short_ones_only() -> None:
    assert closest("abd", ["abc", "xyz"]) == "abc"
    assert closest("abd", []) is None
    assert closest("a" * 1000, ["a" * 999]) is None
    assert closest("abc", map(str, range(100_000))) is None


@pytest.mark.parametrize("number", ["0.10000000000000000555", "1.50", "2.0000000000000000001"])
def test_an_escape_beside_a_decimal_in_any_form(number: str) -> None:
    names = '["\\u0041", "b", "\\ud83d\\ude00"]'
    data = with_field("time_limit_s", f'{number}, "layer_names": {names}')
    assert json.loads(reply(data).data)["layer_names"] == ["A", "b", "😀"]


@pytest.mark.parametrize(
    "text", ['{"a": [1, 0.1, "ü"]}', '\ufeff{"a": 1}', "{", '{"a": 1, "a": 2}']
)
def test_text_is_read_as_its_bytes_are(text: str) -> None:
    def read(data: bytes | str) -> object:
        try:
            return decode(data)
        except InvalidInputError as error:
            return error.path, error.message

    assert read(text) == read(text.encode())


@pytest.mark.parametrize(("text", "path"), [('{"a": ["\ud800"]}', "a[0]"), ('{"\ud800": 1}', "")])
def test_text_with_half_a_surrogate_pair_is_refused(text: str, path: str) -> None:
    with refused(path, "surrogate"):
        decode(text)
