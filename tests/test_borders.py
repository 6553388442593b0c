"""What `import planner` offers, who loads what, and names that have one home in the source."""

import ast
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import planner
import planner.families
from planner.cli import main
from planner.jsonio import PROBLEMS
from planner.model.errors import MissingExtraError, NotApplicableError
from planner.solving.methods import Outcome
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


# ---
# Who loads what

BARRED = ("torch", "matplotlib", "planner.view", "planner.cli", "planner.runtime")

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
    printed("-c", LOADING, stdin=json.dumps(list(REQUESTS.values())))


def test_a_request_loads_no_other_family() -> None:
    code = (
        f"import sys, planner; planner.solve({BATCHES})\n"
        "print([name for name in sys.modules if name.startswith('planner.jsonio.')])"
    )
    loaded = printed("-c", code)
    assert [name for name in PROBLEMS if f"'planner.jsonio.{name}'" in loaded] == ["ibatch"]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_is_drawn_and_draw_reads_an_answer_once(
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert DRAWINGS.keys() == PROBLEMS.keys()
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


# ---
# What `import planner` offers


def test_only_public_names_are_listed() -> None:
    code = (
        "import planner; print(*dir(planner))\n"
        "import planner.view; assert dir(planner) == sorted(planner.__all__)"
    )
    names = printed("-c", code).split()
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


def test_solve_or_raise_answers_as_solve_does() -> None:
    answer, same = planner.solve(BATCHES), planner.solve_or_raise(BATCHES)
    for made in (answer, same):
        del made["runtime_s"]
    assert answer == same
    negative = {**BATCHES, "transfer_ns": [-1, 1]}
    wrong: Any
    for wrong in (negative, {"problem": "ibatches"}, {"problem": {1}}, []):
        said = planner.solve(wrong)["error"]
        with pytest.raises(planner.InvalidInputError) as caught:
            planner.solve_or_raise(wrong)
        assert (said["path"], said["message"]) == (caught.value.path, caught.value.message)
    with pytest.raises(NotApplicableError):
        planner.solve_or_raise({**BATCHES, "method": "ddp"})


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


# ---
# What is in one place, or has one name, in the source

PUBLIC = (
    *("model.profiles", "model.graphs", "model.costs", "model.clusters", "model.network"),
    *("model.topologies", "model.fitting", "programs"),
    *("ibatch", "caramel", "yan", "bml", "bigdl", "drizzle", "fsdp", "overlap"),
    *("collectives", "iteration"),
)
MANY = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return classes, and names that say nothing, and where they are."""
    return [
        (path.relative_to(PACKAGE).as_posix(), node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) or any(names_that_say_nothing(node))
    ]


def names_that_say_nothing(node: ast.AST) -> Iterator[str]:
    """Yield what is bound there and called `one` or `said`, or `found` although it is many."""
    match node:
        case ast.arg(arg=("one" | "said" | "found") as name):
            yield name
        case ast.Name(id=("one" | "said") as name, ctx=ast.Store()):
            yield name
        case ast.FunctionDef(name=("one" | "said" | "found") as name):
            yield name
        case (
            ast.Assign(targets=[ast.Name(id="found")], value=value)
            | ast.AnnAssign(target=ast.Name(id="found"), value=value)
            | ast.For(target=ast.Name(id="found") as value)
            | ast.comprehension(target=ast.Name(id="found") as value)
        ) if isinstance(value, (*MANY, ast.Name)):
            yield "found"
        case _:
            pass


def fields_of(node: ast.ClassDef) -> set[str]:
    annotated = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
    return {target.id for target in annotated if isinstance(target, ast.Name)}


@pytest.mark.slow
def test_kinds_have_one_home_and_variables_are_called_what_they_are() -> None:
    """`found` may be what a search returns, which finds it or not."""
    classes = [(where, node) for where, node in nodes() if isinstance(node, ast.ClassDef)]
    homes = [path for path, node in classes if node.name == Outcome.__name__]
    assert homes == ["solving/methods.py"]
    structures = {
        path for path, node in classes for base in node.bases if ast.unparse(base) == "Struct"
    }
    assert len(structures) > 10
    assert not {path for path in structures if not path.startswith("jsonio/")}
    # Between a plan and a buffer, bytes of a parameter have two forms: those of a program, by name,
    # and those of a model. All else holds these, and a script those of the whole vector.
    sent = ("programs", "runtime", "families/collectives/script")
    forms = {path for path, node in classes if {"start", "stop"} <= fields_of(node)}
    vector, program = "families/collectives/script.py", "programs/forms.py"
    expected = {vector, program, "runtime/model/parameters.py"}
    assert {path for path in forms if path.startswith(sent)} == expected
    folders = Counter(
        (path.rpartition("/")[0], node.name)
        for path, node in classes
        if not node.name.startswith("_")
    )
    assert not {pair for pair, count in folders.items() if count > 1}
    assert not [(path, name) for path, node in nodes() for name in names_that_say_nothing(node)]


def test_start_ups_and_bytes_are_called_so() -> None:
    modules = {name: import_module(f"planner.{name}") for name in PUBLIC}
    public = {
        (f"{module}.{exported}", name)
        for module, contents in modules.items()
        for exported in getattr(contents, "__all__", vars(contents))
        if isinstance(kind := getattr(contents, exported), type)
        for name in {*vars(kind), *vars(kind).get("__annotations__", ())}
    }
    startups = {pair for pair in public if "latency" in pair[1] or "startup" in pair[1]}
    other = {pair for pair in startups if not pair[1].endswith("startup_ns")}
    assert len(startups) > 5
    assert other == {("yan.Constants", "latency_ns")}  # the paper's λ, by the number of threads
    said = {name for _, name in public}
    assert not said & {"size", "sizes", "bytes", "latency"}
    assert {"size_bytes", "element_bytes", "layer_bytes", "gradient_bytes"} <= said
