"""What can harm does not get from a file to a terminal, a picture or a page as it is."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import planner
from planner.cli import main
from planner.model.units import escaped, escaped_json, printable
from tests.jsonio.test_iteration import CLUSTER, PROFILE
from tests.jsonio.test_plan_files import METHODS, TOOLS

EVIL = "a\x1b[31m\x07\x00\x9b2J\u202edrow\u2066\x7f<b>&\"'`$^$\r\nplanner: all is well"
FIXED = {
    "problem", "direction", "objective", "method", "status", "kind", "mode", "pass", "stage",
    "schedule", "type", "read_model",
}  # fmt: skip
"""Fields whose values are not free."""


def hostile(value: Any, key: str = "") -> Any:
    """Return a document whose free strings are hostile, those that were alike still alike."""
    if isinstance(value, dict):
        return {one: hostile(item, one) for one, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, key) for item in value]
    return f"{EVIL} {value}" if isinstance(value, str) and key not in FIXED else value


def is_safe(text: str) -> bool:
    return all(one.isprintable() or one == "\n" for one in text)


def lines_are_ours(text: str) -> bool:
    return is_safe(text) and not any(one.startswith("planner: all is") for one in text.split("\n"))


@pytest.fixture
def said(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("problem", METHODS)
def test_plans_are_answered_compared_drawn_and_exported(
    problem: str, said: Any, tmp_path: Path
) -> None:
    request = hostile(METHODS[problem][0] | METHODS[problem][1][0])
    file = write(tmp_path / "request.json", request)
    status, out, err = said("solve", file)
    assert (status, err) == (0, "")
    assert is_safe(out)
    answer = json.loads(out)
    assert answer | {"runtime_s": 0} == planner.solve(request) | {"runtime_s": 0}
    plan = write(tmp_path / "plan.json", answer)
    commands: list[list[Any]] = [["compare", file], ["draw", plan]]
    commands += [["export", tool, plan] for tool in TOOLS]
    for words in commands:
        status, out, err = said(*words)
        assert status in (0, 2)
        assert status == 0 or words[0] == "export", err
        assert lines_are_ours(out), words
        assert lines_are_ours(err), words


def test_profiles_and_clusters_are_planned_and_compared(said: Any, tmp_path: Path) -> None:
    origin = {**PROFILE["provenance"], "processor": "an abacus"}
    made = hostile({**PROFILE, "provenance": origin}) | {"name": EVIL}
    profile = write(tmp_path / "profile.json", made)
    document = hostile(CLUSTER, "") | {"topology": CLUSTER["topology"]}
    cluster = write(tmp_path / "cluster.json", document)
    network = ["--startup", "10us", "--bandwidth", "1Gb/s"]
    for words in (
        ["plan", profile, "--cluster", cluster, "-o", tmp_path / "plan.json"],
        ["compare", profile, *network],
        ["compare", profile, "--problem", "caramel", *network],
        ["compare", "--problem", "iteration", profile, "--cluster", cluster],
        ["report", profile, "--cluster", cluster, "-o", tmp_path / "report.html"],
        ["draw", tmp_path / "plan.json"],
    ):
        status, out, err = said(*words)
        assert status == 0, (words, err)
        assert lines_are_ours(out), (words, out)
        assert lines_are_ours(err), (words, err)
    assert is_safe((tmp_path / "plan.json").read_text())
    page = (tmp_path / "report.html").read_text()
    assert is_safe(page.replace("\t", ""))
    assert "<b>&" not in page


def test_pictures_are_well_formed_and_show_no_escapes(said: Any, tmp_path: Path) -> None:
    request = hostile(METHODS["caramel"][0])
    plan = write(tmp_path / "plan.json", planner.solve(request))
    assert said("draw", plan, "-o", tmp_path / "plan.svg")[0] == 0
    text = (tmp_path / "plan.svg").read_text()
    assert is_safe(text)
    ElementTree.fromstring(text)
    assert said("draw", plan, "-o", tmp_path / "trace.json")[0] == 0
    assert (tmp_path / "trace.json").read_bytes().isascii()


@pytest.mark.slow
@pytest.mark.parametrize("problem", METHODS)
def test_errors_show_names_of_fields_escaped(problem: str, said: Any, tmp_path: Path) -> None:
    base = METHODS[problem][0]
    documents = [{**base, EVIL: 1}, {EVIL: 1}, {**base, "method": EVIL}, {"problem": EVIL}]
    for document in documents:
        file = write(tmp_path / "file.json", document)
        for words in (["draw", file], ["compare", file], ["export", "ddp", file]):
            status, out, err = said(*words)
            assert status == 2 or words[0] == "compare"  # which passes over a method
            assert err.count("\n") == status // 2
            assert is_safe(out + err)
        status, out, _ = said("solve", file)
        assert status == 2
        assert is_safe(out)
        assert json.loads(out) == planner.solve(document)


def test_names_of_files_are_shown_escaped(said: Any, tmp_path: Path) -> None:
    file = write(tmp_path / EVIL.replace("\x00", "").replace("/", ""), {"problem": "none"})
    for words in (["draw", file], ["compare", file], ["import", "pipedream", file]):
        status, _, err = said(*words)
        assert status == 2
        assert is_safe(err)
        assert err.count("\n") == 1


def test_a_backtick_in_the_name_of_a_parameter_is_a_name(
    said: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # narrow tables abbreviate names
    request = json.loads(json.dumps(METHODS["caramel"][0]))
    for place, row in enumerate(request["parameters"]):
        row["name"] = f"`{place}`$.o"
    answer = planner.solve(request)
    assert any("part" in group for group in answer["groups"])  # its names are keys
    plan = write(tmp_path / "plan.json", answer)
    status, out, err = said("draw", plan)
    assert (status, err) == (0, "")
    assert all(row["name"] in out for row in request["parameters"])


@pytest.mark.parametrize("name", ["x`y", "`", "x` - at `$.ops", "x` - at `$.ops[0]` - at `$.y"])
def test_unknown_fields_with_backticks_are_named(name: str) -> None:
    base = METHODS["caramel"][0]
    assert planner.solve({**base, name: 1})["error"]["path"] == name
    network = {**base["network"], name: 1}
    assert planner.solve({**base, "network": network})["error"]["path"].endswith(name)


def test_what_can_be_shown_is_left_alone() -> None:
    text = "ResNet-50 – Größe 8×, 深度学习, 🙂"
    assert printable(text) == escaped(text) == text
    assert escaped_json(text.encode()) == text.encode()
    assert printable("a\x1b\u202e\n") == "a���"
    assert escaped("a\x1b\u202e\n", keep="\n") == "a\\x1b\\u202e\n"
    odd = "\x7f\x9b\u202e\U000e0001 é"
    assert json.loads(escaped_json(json.dumps(odd, ensure_ascii=False).encode())) == odd
