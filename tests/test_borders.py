"""What `import planner` offers, and who loads what."""

import json
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest

import planner
import planner.families
from planner.cli import main
from planner.jsonio import PROBLEMS
from planner.model.errors import MissingExtraError
from planner.view.drawing import DRAWINGS
from tests.jsonio.test_plan_files import METHODS

PACKAGE = Path(planner.__file__).parent
ROOT = PACKAGE.parent
FAMILIES = [module.name for module in pkgutil.iter_modules(planner.families.__path__)]
REQUESTS = {name: request for name, (request, _) in METHODS.items()}
BATCHES = {"problem": "ibatch", "compute_ns": [2, 6], "startup_ns": 4, "transfer_ns": [3, 1]}


def printed(*words: str, stdin: str = "", path: str = str(ROOT), folder: Path | None = None) -> str:
    """Return what another Python prints: what has been imported since is in this one."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        input=stdin,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BARRED = ("torch", "matplotlib", "planner.view", "planner.cli", "planner.runtime")

LOADING = f"""
import json, sys

def check(what):
    loaded = [name for name in {BARRED} if name in sys.modules]
    assert not loaded, f"{{what}} loads {{loaded}}"

import planner
check("import planner")
planner.solve({BATCHES})
print(*(name for name in sys.modules if name.startswith("planner.jsonio.")))
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


def test_the_library_loads_no_pictures_no_torch_no_command_line_and_no_other_family() -> None:
    loaded = printed("-c", LOADING, stdin=json.dumps(list(REQUESTS.values()))).split()
    assert [name for name in PROBLEMS if f"planner.jsonio.{name}" in loaded] == ["ibatch"]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_is_drawn_and_draw_reads_an_answer_once(
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert DRAWINGS.keys() == PROBLEMS.keys()
    view = Mock(side_effect=PROBLEMS[problem].view)
    monkeypatch.setitem(PROBLEMS, problem, replace(PROBLEMS[problem], view=view))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(planner.solve(REQUESTS[problem])))
    assert main(["draw", str(path)]) == 0
    assert capsys.readouterr().out
    view.assert_called_once()


def test_only_public_names_are_listed() -> None:
    names = printed("-c", "import planner, planner.view; print(*dir(planner))").split()
    assert printed("-c", "import planner; print(*dir(planner))").split() == names
    assert names == sorted(planner.__all__)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert {"Cluster", "read_profile", "read_cluster", "solve", "solve_or_raise"} <= {*names}
    for name in names:
        try:
            assert getattr(planner, name) is not None
        except MissingExtraError:
            assert name == "tune"  # which trains


def test_the_version_is_not_that_of_another_distribution_of_the_name(tmp_path: Path) -> None:
    stranger = tmp_path / "planner-99.dist-info"
    stranger.mkdir()
    (stranger / "METADATA").write_text("Metadata-Version: 2.1\nName: planner\nVersion: 99\n")
    code = (
        "import planner; from importlib.metadata import version; "
        "from planner.model.machine import versions; "
        "print(version('planner'), planner.__version__, versions()['planner'])"
    )
    found = printed("-c", code, path=f"{tmp_path}{os.pathsep}{ROOT}").split()
    assert found == ["99", planner.__version__, planner.__version__]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_a_short_name(family: str) -> None:
    short, home = import_module(f"planner.{family}"), import_module(f"planner.families.{family}")
    assert sorted(short.__all__) == sorted(home.__all__)
    assert all(getattr(short, name) is getattr(home, name) for name in home.__all__)


def test_nothing_in_the_package_imports_short_names() -> None:
    names = "|".join(FAMILIES)
    direct = rf"^\s*(?:from|import) planner\.(?:{names})\b"
    named = rf"^\s*from planner import [^\n]*\b(?:{names})\b"
    short = re.compile(f"{direct}|{named}", flags=re.MULTILINE)
    files = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    assert not [path for path in files if short.search(path.read_text(encoding="utf-8"))]
    assert short.search("    from planner.yan import Problem")
    assert short.search("from planner import read_profile, yan")
