"""What is said in one place, or by one name, stays there: read off the source of the package."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from planner.solving.methods import Outcome

ROOT = Path(__file__).parents[1] / "planner"
PUBLIC = (
    *("model.profiles", "model.graphs", "model.costs", "model.clusters", "model.network"),
    *("model.topologies", "model.fitting", "programs"),
    *("ibatch", "caramel", "yan", "bml", "bigdl", "drizzle", "fsdp", "overlap"),
    *("collectives", "iteration"),
)
MANY = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return what says something: classes, and names that say nothing, and where they are."""
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) or any(names_that_say_nothing(node))
    ]


def classes() -> list[tuple[str, ast.ClassDef]]:
    """Return all classes of the package, and where they are."""
    return [(where, node) for where, node in nodes() if isinstance(node, ast.ClassDef)]


def fields_of(node: ast.ClassDef) -> set[str]:
    annotated = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
    return {target.id for target in annotated if isinstance(target, ast.Name)}


@pytest.mark.slow
def test_kinds_have_one_home() -> None:
    homes = [path for path, node in classes() if node.name == Outcome.__name__]
    assert homes == ["solving/methods.py"]
    structures = {
        path for path, node in classes() for base in node.bases if ast.unparse(base) == "Struct"
    }
    assert len(structures) > 10
    assert not {path for path in structures if not path.startswith("jsonio/")}
    # Between a plan and a buffer, bytes of a parameter have two forms: those of a program, by name,
    # and those of a model. All else holds these, and a script those of the whole vector.
    sent = ("programs", "runtime", "families/collectives/script")
    forms = {path for path, node in classes() if {"start", "stop"} <= fields_of(node)}
    vector, program = "families/collectives/script.py", "programs/forms.py"
    expected = {vector, program, "runtime/model/parameters.py"}
    assert {path for path in forms if path.startswith(sent)} == expected
    folders = Counter(
        (path.rpartition("/")[0], node.name)
        for path, node in classes()
        if not node.name.startswith("_")
    )
    assert not {pair for pair, count in folders.items() if count > 1}


def public_names() -> set[tuple[str, str]]:
    """Return what typed problems, plans, networks and profiles say of themselves, and do."""
    modules = {name: import_module(f"planner.{name}") for name in PUBLIC}
    return {
        (f"{module}.{exported}", name)
        for module, contents in modules.items()
        for exported in getattr(contents, "__all__", vars(contents))
        if isinstance(kind := getattr(contents, exported), type)
        for name in {*vars(kind), *vars(kind).get("__annotations__", ())}
    }


def test_start_ups_and_bytes_are_called_so() -> None:
    startups = {pair for pair in public_names() if "latency" in pair[1] or "startup" in pair[1]}
    other = {pair for pair in startups if not pair[1].endswith("startup_ns")}
    assert len(startups) > 5
    assert other == {("yan.Constants", "latency_ns")}  # the paper's λ, by the number of threads
    said = {name for _, name in public_names()}
    assert not said & {"size", "sizes", "bytes", "latency"}
    assert {"size_bytes", "element_bytes", "layer_bytes", "gradient_bytes"} <= said


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


@pytest.mark.slow
def test_variables_are_called_what_they_are() -> None:
    """`found` may be what a search returns, which finds it or not."""
    assert not [(path, name) for path, node in nodes() for name in names_that_say_nothing(node)]
