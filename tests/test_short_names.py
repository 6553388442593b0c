"""Families are found under short names too, which nothing in the package uses."""

import ast
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import planner
import planner.families

FAMILIES = [module.name for module in pkgutil.iter_modules(planner.families.__path__)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_a_short_name(family: str) -> None:
    short, home = import_module(f"planner.{family}"), import_module(f"planner.families.{family}")
    assert sorted(short.__all__) == sorted(home.__all__)
    assert all(getattr(short, name) is getattr(home, name) for name in home.__all__)


def test_nothing_in_the_package_imports_short_names() -> None:
    root = Path(planner.__file__).parent
    short = {f"planner.{family}" for family in FAMILIES}
    for path in sorted(root.rglob("*.py")):
        if path == root / "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            else:
                continue
            assert not names & short, path
