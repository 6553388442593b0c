"""What is said in one place, or by one name, stays there: read off the source of the package."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property
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
READ = (property, cached_property)
MANY = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Yield all of the package's source, and where it is."""
    for path in ROOT.rglob("*.py"):
        where = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield where, node


@cache
def read() -> tuple[list[tuple[str, ast.ClassDef]], set[tuple[str, str]]]:
    """Return classes and names that say nothing, and where they are: of one reading."""
    kinds, vague = [], set()
    for where, node in nodes():
        if isinstance(node, ast.ClassDef):
            kinds.append((where, node))
        vague |= {(where, name) for name in names_that_say_nothing(node)}
    return kinds, vague


def classes() -> list[tuple[str, ast.ClassDef]]:
    """Return all classes of the package, and where they are."""
    return read()[0]


def fields_of(node: ast.ClassDef) -> set[str]:
    annotated = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
    return {target.id for target in annotated if isinstance(target, ast.Name)}


@pytest.mark.slow
def test_methods_have_one_kind_of_outcome() -> None:
    assert [path for path, node in classes() if node.name == Outcome.__name__] == [
        "solving/methods.py"
    ]


@pytest.mark.slow
def test_structures_of_json_are_where_json_is_known() -> None:
    structures = {
        path for path, node in classes() for base in node.bases if ast.unparse(base) == "Struct"
    }
    assert len(structures) > 10
    assert not {path for path in structures if not path.startswith("jsonio/")}


@pytest.mark.slow
def test_between_a_plan_and_a_buffer_bytes_of_a_parameter_have_two_forms() -> None:
    """Those of a program, by name, and those of a model: all else holds these."""
    forms = [
        path
        for path, node in classes()
        if path.startswith(("programs", "runtime", "families/collectives/script"))
        and {"start", "stop"} <= fields_of(node)
    ]
    of_the_whole_vector = "families/collectives/script.py"
    assert sorted(forms) == [
        of_the_whole_vector,
        "programs/forms.py",
        "runtime/model/parameters.py",
    ]


def names_of(kind: type) -> set[str]:
    """Return what can be read of a class's instances."""
    read = {name for name, member in vars(kind).items() if isinstance(member, READ)}
    return read | set(vars(kind).get("__annotations__", ()))


def public_names() -> set[tuple[str, str]]:
    """Return what typed problems, plans, networks and profiles say of themselves."""
    modules = {name: import_module(f"planner.{name}") for name in PUBLIC}
    return {
        (f"{module}.{exported}", name)
        for module, contents in modules.items()
        for exported in getattr(contents, "__all__", vars(contents))
        if isinstance(kind := getattr(contents, exported), type) and not exported.startswith("_")
        for name in names_of(kind)
    }


def test_a_start_up_is_called_one() -> None:
    startups = {
        (where, name) for where, name in public_names() if "latency" in name or "startup" in name
    }
    other = {pair for pair in startups if not pair[1].endswith("startup_ns")}
    assert len(startups) > 5
    assert other == {("yan.Constants", "latency_ns")}  # the paper's λ, by the number of threads


def test_numbers_of_bytes_say_so() -> None:
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
    assert not read()[1]


@pytest.mark.slow
def test_public_classes_of_a_folder_have_names_of_their_own() -> None:
    folders = Counter(
        (path.rpartition("/")[0], node.name)
        for path, node in classes()
        if not node.name.startswith("_")
    )
    assert not {pair for pair, count in folders.items() if count > 1}
