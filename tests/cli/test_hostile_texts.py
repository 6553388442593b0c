"""What can harm does not get from a file to a terminal, a picture or a page as it is."""

import json
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import planner
from planner.model.units import escaped, escaped_json, printable
from tests.cli.documents import LINK
from tests.cli.line import Line, Said, read, write
from tests.jsonio.test_iteration import CLUSTER
from tests.jsonio.test_iteration import PROFILE as MODEL
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
        return {name: hostile(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, key) for item in value]
    return f"{EVIL} {value}" if isinstance(value, str) and key not in FIXED else value


def is_safe(text: str) -> bool:
    return all(one.isprintable() or one == "\n" for one in text)


def check_lines(said: Said) -> None:
    """Refuse lines that do more than show text, and those that come from the file."""
    for text in said:
        assert is_safe(text)
        assert not any(row.startswith("planner: all is") for row in text.split("\n"))


@pytest.mark.parametrize("problem", METHODS)
def test_plans_are_answered_compared_drawn_and_exported(problem: str, line: Line) -> None:
    request = hostile(METHODS[problem][0] | METHODS[problem][1][0])
    write("asked.json", request)
    out, err = line("solve asked.json")
    assert err == ""
    assert is_safe(out)
    answer = json.loads(out)
    assert answer | {"runtime_s": 0} == planner.solve(request) | {"runtime_s": 0}
    write("plan.json", answer)
    check_lines(line("compare asked.json"))
    check_lines(line("draw plan.json"))
    for tool in TOOLS:
        check_lines(line(f"export {tool} plan.json", status=None))
    line("draw plan.json -o plan.svg")
    picture = Path("plan.svg").read_text()
    assert is_safe(picture)
    ElementTree.fromstring(picture)
    if problem in ("ibatch", "caramel"):
        line("draw plan.json -o trace.json")
        assert Path("trace.json").read_bytes().isascii()


def test_profiles_and_clusters_are_planned_and_compared(line: Line) -> None:
    origin = {**MODEL["provenance"], "processor": "an abacus"}
    write("p.json", hostile({**MODEL, "provenance": origin}) | {"name": EVIL})
    write("c.json", hostile(CLUSTER) | {"topology": CLUSTER["topology"]})
    for words in (
        "plan p.json --cluster c.json -o plan.json",
        f"compare p.json {LINK}",
        f"compare p.json --problem caramel {LINK}",
        "compare --problem iteration p.json --cluster c.json",
        "report p.json --cluster c.json -o report.html",
        "draw plan.json",
    ):
        check_lines(line(words))
    assert is_safe(Path("plan.json").read_text())
    page = Path("report.html").read_text()
    assert is_safe(page.replace("\t", ""))
    assert "<b>&" not in page


def test_errors_show_names_of_fields_escaped(line: Line) -> None:
    base = METHODS["caramel"][0]
    for document in ({**base, EVIL: 1}, {EVIL: 1}, {**base, "method": EVIL}, {"problem": EVIL}):
        write("asked.json", document)
        for words in ("draw asked.json", "export ddp asked.json"):
            error = line.error(words)
            assert error.count("\n") == 1
            assert is_safe(error)
        compared = line("compare asked.json", status=None)  # which passes over a method
        assert is_safe(compared.out + compared.err)
        assert compared.err.count("\n") == (0 if compared.out else 1)
        out, _ = line("solve asked.json", status=2)
        assert is_safe(out)
        assert json.loads(out) == planner.solve(document)


def test_names_of_files_are_shown_escaped(line: Line) -> None:
    name = EVIL.replace("\x00", "").replace("/", "")
    write(name, {"problem": "none"})
    for words in (["draw"], ["compare"], ["import", "pipedream"]):
        error = line.error(*words, shlex.quote(name))
        assert is_safe(error)
        assert error.count("\n") == 1


def test_a_backtick_in_the_name_of_a_parameter_is_a_name(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # narrow tables abbreviate names
    request = json.loads(json.dumps(METHODS["caramel"][0]))
    names = [f"`{place}`$.o" for place, _ in enumerate(request["parameters"])]
    for row, name in zip(request["parameters"], names, strict=True):
        row["name"] = name
    write("plan.json", planner.solve(request))
    assert any("part" in group for group in read("plan.json")["groups"])  # its names are keys
    out, err = line("draw plan.json")
    assert err == ""
    assert all(name in out for name in names)


def test_what_can_be_shown_is_left_alone() -> None:
    text = "ResNet-50 – Größe 8×, 深度学习, 🙂"
    assert printable(text) == escaped(text) == text
    assert escaped_json(text.encode()) == text.encode()
    assert printable("a\x1b\u202e\n") == "a���"
    assert escaped("a\x1b\u202e\n", keep="\n") == "a\\x1b\\u202e\n"
    odd = "\x7f\x9b\u202e\U000e0001 é"
    assert json.loads(escaped_json(json.dumps(odd, ensure_ascii=False).encode())) == odd
