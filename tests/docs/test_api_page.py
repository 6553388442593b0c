"""The page of the Python interface has a word on every public package."""

import doctest
import pkgutil
import re
from pathlib import Path

import pytest

import planner
from planner.jsonio import PROBLEMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^\.\. auto\w+:: (planner[\w.]*)", PAGE, flags=re.MULTILINE)

# What the commands and the planners are built of, not an interface.
ROOMS = ("model", "solving", "families")
INTERNAL = {
    "planner.__main__",
    "planner.cli",  # its interface are the commands
    "planner.model.machine",
    "planner.model.measured",  # its tables are made by files, and read by `planner.Cluster`
    "planner.model.units",
    "planner.model.loading",
    "planner.model.validation",
    "planner.solving.bucketing",
    "planner.solving.contention",
    "planner.solving.diagnostics",
    "planner.solving.methods",
    "planner.solving.local_search",
    "planner.solving.pareto",
    "planner.solving.plugins",  # its interface are entry points; see `examples/plugin`
    "planner.solving.simulator",
    "planner.solving.tie_break",
    "planner.solving.views",
}


def test_every_public_module_is_there() -> None:
    modules = {
        module.name
        for folder in ("", *ROOMS)
        for module in pkgutil.iter_modules(
            [str(ROOT / "planner" / folder)], f"planner.{folder}.".replace("..", ".")
        )
    } - {f"planner.{room}" for room in ROOMS}
    assert modules >= INTERNAL
    # What a module documents may stand under `planner` itself, or under a family's short name.
    exported = {
        getattr(getattr(planner, name), "__module__", f"planner.{name}")
        for name in set(planner.__all__) - {"tune"}  # which needs torch, and stands there itself
        if f"planner.{name}" in DOCUMENTED
    }
    named = {f"{name}.".replace(".families.", ".") for name in (*DOCUMENTED, *exported)}
    missing = {
        module
        for module in modules - INTERNAL
        if not any(name.startswith(f"{module}.".replace(".families.", ".")) for name in named)
    }
    assert not missing


def test_every_exported_name_is_there() -> None:
    for name in planner.__all__:
        assert any(one.startswith(f"planner.{name}") for one in DOCUMENTED) or name in {
            "InvalidInputError",  # of `planner.model.errors`, which is there as a whole
            "PlannerError",
            "__version__",
        }, name


def test_every_family_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    for family in PROBLEMS:
        assert any(f"planner.{family}.solve(" in block for block in blocks), family
    examples = doctest.DocTestParser().get_doctest("".join(blocks), {}, "api.md", None, 0)
    monkeypatch.chdir(ROOT)
    said: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert not failed, "".join(said)
    assert tried > 2 * len(PROBLEMS)
