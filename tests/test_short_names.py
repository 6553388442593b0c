"""Families are found under short names too, which nothing in the package uses."""

import pkgutil
import re
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
    names = "|".join(FAMILIES)
    direct = rf"^\s*(?:from|import) planner\.(?:{names})\b"
    named = rf"^\s*from planner import [^\n]*\b(?:{names})\b"
    short = re.compile(f"{direct}|{named}", flags=re.MULTILINE)
    root = Path(planner.__file__).parent
    files = [path for path in root.rglob("*.py") if path != root / "__init__.py"]
    assert not [path for path in files if short.search(path.read_text(encoding="utf-8"))]
    assert short.search("    from planner.yan import Problem")
    assert short.search("from planner import read_profile, yan")
