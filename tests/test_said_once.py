"""What is said in one place, or by one name, stays there: read off the source of the package."""

import ast
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

import pytest

from planner.methods import Outcome

ROOT = Path(__file__).parents[1] / "planner"
PUBLIC = (
    *("profiles", "graphs", "costs", "clusters", "network", "topologies", "sweeps", "programs"),
    *("ibatch", "caramel", "yan", "bml", "bigdl", "drizzle", "fsdp", "collectives", "iteration"),
)
READ = (property, cached_property)


@cache
def classes() -> list[tuple[str, ast.ClassDef]]:
    """Return all classes of the package, and where they are."""
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


def fields_of(node: ast.ClassDef) -> set[str]:
    annotated = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
    return {target.id for target in annotated if isinstance(target, ast.Name)}


@pytest.mark.slow
def test_methods_have_one_kind_of_outcome() -> None:
    assert [path for path, node in classes() if node.name == Outcome.__name__] == ["methods.py"]


def test_structures_of_json_are_where_json_is_known() -> None:
    structures = {
        path for path, node in classes() for base in node.bases if ast.unparse(base) == "Struct"
    }
    assert len(structures) > 10
    assert not {path for path in structures if not path.startswith("jsonio/")}


def test_between_a_plan_and_a_buffer_bytes_of_a_parameter_have_two_forms() -> None:
    """Those of a program, by name, and those of a model: all else holds these."""
    forms = [
        path
        for path, node in classes()
        if path.startswith(("programs", "runtime", "collectives/script"))
        and {"start", "stop"} <= fields_of(node)
    ]
    of_the_whole_vector = "collectives/script.py"
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
        for exported in contents.__all__
        if isinstance(kind := getattr(contents, exported), type)
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
