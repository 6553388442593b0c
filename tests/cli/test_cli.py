"""The command line, as a person meets it."""

import json
import re
from pathlib import Path

import pytest

from planner.jsonio import PROBLEMS, decode_profile, reply, schema
from planner.jsonio.schemas import FILES
from tests import schemas
from tests.cli.documents import IBATCH
from tests.cli.line import Line, Said, commands, read, write
from tests.jsonio.requests import SMALL as YAN

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
