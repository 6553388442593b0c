"""The command line, as a person meets it, and as texts do that can harm."""

import json
import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import planner
from planner.jsonio import PROBLEMS, decode_profile, reply, schema
from planner.jsonio.schemas import FILES
from planner.model.units import escaped, escaped_json, printable
from tests import schemas
from tests.cli.documents import IBATCH, LINK
from tests.cli.line import Line, Said, commands, read, write
from tests.jsonio.requests import SMALL as YAN
from tests.jsonio.test_iteration import CLUSTER
from tests.jsonio.test_iteration import PROFILE as MODEL
from tests.jsonio.test_plan_files import METHODS, TOOLS

GOOD = json.dumps(IBATCH)


def test_files_and_standard_streams_hold_requests_and_answers(line: Line) -> None:
    out, err = line("solve", given=IBATCH)
    assert json.loads(out)["status"] == "optimal"
    assert (out.count("\n"), err) == (1, "")
    assert line("solve request.json -o answer.json") == ("", "")
    assert read("answer.json")["status"] == "optimal"
    assert line("solve --output answer.json", given=b"{", status=2) == ("", "")
    assert read("answer.json")["error"]["code"] == "invalid_request"
    refused = line("solve - -o -", given={**IBATCH, "startup_ns": -1}, status=2)
    assert refused.json["error"]["path"] == "startup_ns"


def test_streams_keep_order_and_survive_bad_lines(line: Line) -> None:
    write("requests.jsonl", f"{GOOD}\n{{\n{GOOD}\n\n{GOOD}")
    printed = line("solve --jsonl requests.jsonl", status=2).out
    assert line("solve --jsonl requests.jsonl -o answers", status=2) == ("", "")
    for answers in (printed, Path("answers").read_text()):
        solved = ["status" in json.loads(answer) for answer in answers.splitlines()]
        assert solved == [True, False, True, False, True]


def test_a_fault_exits_with_1_and_leaves_other_requests_alone(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("planner.families.ibatch.family.check", broken)
    monkeypatch.delenv("PLANNER_DEBUG", raising=False)
    others = f"{GOOD}\n{{\n{json.dumps(YAN)}\n".encode()
    out, err = line("solve --jsonl", given=others, status=1)
    fault, invalid, answer = map(json.loads, out.splitlines())
    assert fault["error"]["code"] == "internal_error"
    assert invalid["error"]["code"] == "invalid_request"
    assert answer["status"] == "optimal"
    assert "Traceback" not in err
    assert reply(GOOD.encode()).exit_status == 1
    monkeypatch.setenv("PLANNER_DEBUG", "1")
    assert "ZeroDivisionError" in line("solve", given=IBATCH, status=1).err


@pytest.mark.parametrize("path", [one.path for one in commands() if "--quiet" in one.options])
def test_every_help_text_has_an_example(path: tuple[str, ...], line: Line) -> None:
    name = " ".join(path)
    text = line(name, "--help").out
    assert re.search(rf"\bexample\b[^\0]*\bplanner {name}\b", text)


def test_profile_keeps_standard_output_for_the_profile(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    write(
        "noisy_model.py",
        "import torch\nprint('hello')\n"
        "def make():\n    return torch.nn.Linear(2, 2), (torch.ones(1, 2),)\n"
        "def leave():\n    raise SystemExit(0)\n",
    )
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def profiled(words: str, status: int = 0) -> Said:
        return line("profile", words, "--repetitions 2 --warmup 0", status=status)

    out, err = profiled("noisy_model:make")
    profile = decode_profile(out.encode())
    assert (profile.parameter_bytes, profile.provenance.threads) == (24, 1)
    for said in ("hello", "1 layer, 2 parameters with gradients, 24 B", "by 1 thread\n"):
        assert said in err
    assert "written to standard output" in err
    out, err = profiled("noisy_model:make --threads 2")
    assert "by 2 threads\n" in err
    assert decode_profile(out.encode()).provenance.source.endswith("--threads 2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as torchrun sets it, before torch is loaded
    _, err = profiled("noisy_model:make")
    own = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert f"by {own} thread{'s' * (own > 1)}\n" in err
    assert "written to made.json" in profiled("noisy_model:make -o made.json").out
    assert decode_profile(Path("made.json").read_bytes()).parameter_bytes == 24
    assert "ended the program" in profiled("noisy_model:leave", 2).err
    profiled("noisy_model:make -o nowhere/profile.json", 2)


def test_the_schema_is_one_of_schemas(line: Line) -> None:
    everything = line("schema").json
    assert everything.keys() == {*PROBLEMS, *FILES}
    assert line("schema ibatch").json.keys() == {"request", "answer", "error"}
    for name, found in everything.items():
        assert found == json.loads(json.dumps(schema(name)))
        for part in found.values() if name in PROBLEMS else [found]:
            schemas.check_schema(part)


def test_no_command_and_no_file_of_the_schema_is_forgotten() -> None:
    """Who holds what they print against the schema."""
    calibrating = {"compute": "calibrate compute", "fit": "calibrate fit"}  # test_calibrate.py
    printed = {**calibrating, "profile": "import", "spark": "import"}
    answered = {"compare", "plan", "solve"}  # against the answers of the library, and the schema
    elsewhere = {"run", "calibrate network", "profile", "why", "tune"}  # the tests of their names
    not_ours = {"draw", "export", "report"}  # pictures, pages and files of other tools
    assert {*printed, "cluster", "network", "run", "why", "tune"} == set(FILES)
    writing = {" ".join(one.path) for one in commands() if {"--json", "--output"} & {*one.options}}
    assert writing == {*printed.values()} | answered | elsewhere | not_ours


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
