"""Documents that no schema foresees: odd numbers, texts, keys and shapes are refused, or read."""

import json
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.jsonio import reply
from planner.jsonio.decoding import decode
from planner.model.errors import InvalidInputError
from planner.model.validation import closest, exact
from tests.jsonio.test_caramel import CONTRACT as CARAMEL
from tests.jsonio.test_service import EXAMPLE

HUGE, TINY = "1E1000000000000000000000", "1e-9999999999999999999"


def with_field(name: str, written: str) -> bytes:
    """Return the example with a field whose value is written in this way."""
    return json.dumps(EXAMPLE)[:-1].encode() + f', "{name}": {written}}}'.encode()


def refusal(data: bytes) -> tuple[str, str]:
    answer = reply(data)
    found = json.loads(answer.data)["error"]
    assert (answer.exit_status, found["code"]) == (2, "invalid_request"), found
    return found["path"], found["message"]


@pytest.mark.parametrize("number", ["0.10000000000000000555", "1.50", "2.0000000000000000001"])
def test_an_escape_beside_a_decimal_in_any_form(number: str) -> None:
    data = with_field(
        "time_limit_s", f'{number}, "layer_names": ["\\u0041", "b", "\\ud83d\\ude00"]'
    )
    assert json.loads(reply(data).data)["layer_names"] == ["A", "b", "😀"]


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("number", [HUGE, TINY, "0e99999999999999999999"])
@pytest.mark.parametrize(
    "field", ["time_limit_s", "startup_ns", "method", "layer_names", "max_batch_bytes", "zzz"]
)
def test_exponents_beyond_those_of_decimals(field: str, number: str, sign: str) -> None:
    data = with_field(field, sign + number).replace(b'"startup_ns": 4, ', b"")
    if field != "startup_ns":
        data = data.replace(b"{", b'{"startup_ns": 4, ', 1)
    assert refusal(data)[0] == field


@pytest.mark.parametrize("command", [["solve"], ["compare"], ["draw"], ["report"], ["plan"]])
@pytest.mark.parametrize("number", [HUGE, TINY])
def test_commands_refuse_such_files(
    command: list[str], number: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(with_field("time_limit_s", number))
    options = ["--cluster", str(path)] if command[0] in ("plan", "report") else []
    assert main([*command, str(path), *options]) == 2
    said = "".join(capfd.readouterr())
    assert "Traceback" not in said
    assert "InvalidOperation" not in said


def test_a_number_of_a_million_digits_is_refused_at_once() -> None:
    for number in (f"0.{'3' * 10**6}", f"{'3' * 10**6}.5", f"1.{'0' * 10**6}e5"):
        data = json.dumps(CARAMEL).replace("0.8", number).encode()
        begin = time.process_time()
        path, message = refusal(data)
        assert time.process_time() - begin < 2
        assert path == "network.ns_per_byte"
        assert "characters" in message


def test_a_long_misspelt_name_is_refused_at_once() -> None:
    long = "ab" * 100_000
    begin = time.process_time()
    for request in (
        {**EXAMPLE, long: 1},
        {**EXAMPLE, "method": long},
        {**EXAMPLE, "problem": long},
        {**CARAMEL, "parameters": [{**CARAMEL["parameters"][0], "read_by": long}]},
        {**EXAMPLE, "x": [{long: {long: {"y": "\ud800"}}}]},
    ):
        error = planner.solve(request)["error"]
        assert len(error["path"]) + len(error["message"]) < 1000
    assert time.process_time() - begin < 2


def test_a_bad_value_under_one_of_many_keys_is_found_at_once() -> None:
    depths = {str(number): CARAMEL["network"] for number in range(20_000)}
    network = {**CARAMEL["network"], "depths": {**depths, "7": {"startup_ns": -1}}}
    begin = time.process_time()
    path, _ = refusal(json.dumps({**CARAMEL, "network": network}).encode())
    assert path == "network.depths.7.startup_ns"
    assert time.process_time() - begin < 4


@pytest.mark.parametrize("container", [list, dict])
def test_what_is_deep_or_holds_itself_is_refused(container: type) -> None:
    def around(inner: Any) -> Any:
        return [inner] if container is list else {"a": inner}

    deep: Any = 0
    for _ in range(100_000):
        deep = around(deep)
    itself = around(0)
    itself[0 if container is list else "a"] = itself
    ninety: Any = 0
    for _ in range(90):
        ninety = around(ninety)
    for value in (deep, itself):
        error = planner.solve({**EXAMPLE, "x": value})["error"]
        assert "nested too deeply" in error["message"]
    assert planner.solve({**EXAMPLE, "x": ninety})["error"]["path"] == "x"
    text = json.dumps({**EXAMPLE, "x": ninety}).encode()
    assert refusal(text)[0] == "x"


@pytest.mark.parametrize(
    "value", [Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E-5000")]
)
def test_decimals_that_are_no_numbers_are_refused(value: Decimal) -> None:
    for field in ("time_limit_s", "startup_ns"):
        assert planner.solve({**EXAMPLE, field: value})["error"]["path"] == field
    network = {"startup_ns": 50, "ns_per_byte": value}
    error = planner.solve({**CARAMEL, "network": network})["error"]
    assert error["path"] == "network.ns_per_byte"


def test_the_closest_name_is_found_among_short_ones_only() -> None:
    assert closest("abd", ["abc", "xyz"]) == "abc"
    assert closest("abd", []) is None
    assert closest("a" * 1000, ["a" * 999]) is None
    assert closest("abc", map(str, range(100_000))) is None


@pytest.mark.parametrize("text", ["0.12345678901234567890123", "1e-40", "123456789012345678.5"])
def test_decimals_are_what_is_written(text: str) -> None:
    assert exact(decode(text.encode()), "number") == Fraction(text)


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
    with pytest.raises(InvalidInputError, match="surrogate") as caught:
        decode(text)
    assert caught.value.path == path
