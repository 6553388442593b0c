"""Who loads what: planning loads neither pictures nor torch nor the command line."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.jsonio import PROBLEMS
from planner.view.drawing import DRAWINGS
from tests.jsonio.test_plan_files import METHODS

REQUESTS = {name: request for name, (request, _) in METHODS.items()}

BARRED = (
    "torch",
    "matplotlib",
    "planner.view",
    "planner.cli",
    "planner.view.page",
    "planner.runtime",
)

LOADING = f"""
import json, sys

def check(what):
    loaded = [name for name in {BARRED} if name in sys.modules]
    assert not loaded, f"{{what}} loads {{loaded}}"

import planner
check("import planner")
for name in {list(PROBLEMS)}:
    getattr(planner, name).solve
    check(f"planner.{{name}}")
import planner.formats.exporters.frameworks, planner.jsonio
import planner.model.profiles, planner.programs
check("planner.jsonio")
for request in json.load(sys.stdin):
    answer = planner.solve(request)
    assert "error" not in answer, answer
    check(f"planner.solve of {{request['problem']}}")
    planner.jsonio.decode_answer(json.dumps(answer).encode())
    check(f"reading an answer of {{request['problem']}}")
    if request["problem"] in ("bigdl", "caramel", "ibatch", "iteration"):
        planner.programs.program_of(answer)
        check(f"a program of {{request['problem']}}")
"""


def test_the_library_loads_no_pictures_no_torch_and_no_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADING],
        input=json.dumps(list(REQUESTS.values())),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_request_loads_no_other_family() -> None:
    script = (
        "import sys, planner; planner.solve({'problem': 'ibatch', 'startup_ns': 4, "
        "'transfer_ns': [3, 1], 'compute_ns': [2, 6]})\n"
        "print([name for name in sys.modules if name.startswith('planner.jsonio.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "planner.jsonio.ibatch" in done.stdout
    assert not [name for name in PROBLEMS if name != "ibatch" and f"jsonio.{name}'" in done.stdout]


def test_every_problem_is_drawn() -> None:
    assert DRAWINGS.keys() == PROBLEMS.keys()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_draw_reads_an_answer_once(
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interface, calls = PROBLEMS[problem], []

    def view(answer: Any) -> Any:
        calls.append(answer)
        return interface.view(answer)

    monkeypatch.setitem(PROBLEMS, problem, replace(interface, view=view))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(planner.solve(REQUESTS[problem])))
    assert main(["draw", str(path)]) == 0
    assert capsys.readouterr().out
    assert len(calls) == 1
