"""One form of an option, one parser: all commands take the same and refuse the same."""

import json
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest

import planner
from planner.cli import main
from planner.cli.parsing import parse_bcube, parse_count, parse_number, seconds
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube

PROFILE = {
    "name": "tiny",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "layers": [
        {"name": "a", "forward_ns": 5000, "backward_ns": 9000, "parameter_bytes": 4096},
        {"name": "b", "forward_ns": 7000, "backward_ns": 8000, "parameter_bytes": 8192},
    ],
}
CLUSTER = {
    "name": "four",
    "source": "a test",
    "machines": 4,
    "topology": {"kind": "switch"},
    "nic": {"bytes_per_s": 10**9, "startup_ns": 1000},
}
PLAN = {
    "problem": "caramel",
    "ops": [
        {"name": "f", "ns": 10, "pass": "forward"},
        {"name": "b", "ns": 20, "pass": "backward", "after": ["f"]},
    ],
    "parameters": [{"name": "w", "bytes": 8, "updated_by": "b", "read_by": "f"}],
    "network": {"startup_ns": 1, "ns_per_byte": 1},
}
LINK = ("--startup", "5us", "--bandwidth", "8Gb/s")

WITH_BCUBE = {
    "compare": ("compare", "profile.json", "--problem", "bml", *LINK),
    "calibrate": ("calibrate", "network"),
}
WITH_SECONDS = {
    "compare": ("compare", "profile.json", *LINK, "--time-limit"),
    "plan": ("plan", "profile.json", "--cluster", "cluster.json", "--time-limit"),
    "report": ("report", "profile.json", "--cluster", "cluster.json", "--time-limit"),
    "run": ("run", "plan.json", "--model", "no_such_module:make", "--timeout"),
    "calibrate": ("calibrate", "network", "--timeout"),
    "a sample": ("calibrate", "network", "--seconds"),
}
WITH_NAMES = {
    "compare": ("--methods", ("compare", "profile.json", *LINK)),
    "plan": ("--algorithms", ("plan", "profile.json", "--cluster", "cluster.json")),
    "depths": ("--depths", ("calibrate", "network")),
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, document in (
        ("profile.json", PROFILE),
        ("cluster.json", CLUSTER),
        ("plan.json", planner.solve(PLAN)),
    ):
        (tmp_path / name).write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)


def error_of(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    if arguments[0] in ("calibrate", "run"):
        pytest.importorskip("torch")
    with suppress(SystemExit):  # argparse's own refusals
        main(list(arguments))
    return capsys.readouterr().err


@pytest.mark.parametrize("command", WITH_BCUBE.values(), ids=WITH_BCUBE)
@pytest.mark.parametrize("form", ["3,2", "3x2"])
def test_a_bcube_is_the_same_everywhere(
    command: tuple[str, ...], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--bcube" not in error_of((*command, "--bcube", form), capsys)


@pytest.mark.parametrize("command", WITH_BCUBE.values(), ids=WITH_BCUBE)
@pytest.mark.parametrize("form", ["3", "3;2", "3,2,1", "3, 2", "٣,٢"])
def test_what_is_no_bcube_is_none_anywhere(
    command: tuple[str, ...], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of((*command, "--bcube", form), capsys)
    assert f"--bcube: expected n,k such as 3,2, got '{form}'" in error


@pytest.mark.slow
@pytest.mark.parametrize("command", WITH_SECONDS.values(), ids=WITH_SECONDS)
def test_seconds_are_a_number_or_a_time(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    option = command[-1]
    for form in ("10", "1e1", "10s", "10000ms"):
        assert option not in error_of((*command, form), capsys)
    for form in ("soon", "10 parsecs", ""):
        error = error_of((*command, form), capsys)
        assert f"{option}: expected seconds, or a time such as 500ms, got '{form}'" in error


@pytest.mark.parametrize(("option", "command"), WITH_NAMES.values(), ids=WITH_NAMES)
def test_lists_have_no_empty_items(
    option: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for form in (",", "1,,2"):
        error = error_of((*command, option, form), capsys)
        assert f"{option}: expected a list such as A,B, got '{form}'" in error


def test_blanks_and_repetitions_in_lists_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "profile.json", *LINK, "--json", "--methods"]
    assert main([*command, "exact, greedy,exact"]) == 0
    assert {row["method"] for row in json.loads(capsys.readouterr().out)} == {"exact", "greedy"}


def test_what_forms_mean() -> None:
    assert parse_bcube("3,2") == parse_bcube("3x2") == BCube(3, 2)
    for form, duration in (("10", 10), ("1e1", 10), ("10s", 10), ("500ms", 0.5), ("2us", 2e-6)):
        assert seconds(form) == duration
    for text in ("0.02", "1/50"):
        assert parse_number(text, "--computation", positive=True) == Fraction(1, 50)
    assert parse_number("0", "--optimiser") == Fraction(0)
    assert parse_count("08", "--depths") == 8


@pytest.mark.parametrize("text", ["0", "0/3", "-1", "1e3", "1/0", "1" * 41, ""])
def test_numbers_of_options_are_above_0_where_that_is_needed(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^--computation: expected a number > 0"):
        parse_number(text, "--computation", positive=True)


@pytest.mark.parametrize("text", ["٣", "-1", "1.0", "1" * 10, "", "²"])
def test_counts_are_digits(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^--depths: expected a whole number"):
        parse_count(text, "--depths")
