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
INTERNAL = {
    "__main__",
    "beside",
    "bucketing",
    "cli",  # its interface are the commands
    "disturbances",
    "layer_parameters",
    "machine",
    "measured",  # its tables are made by files, and read by `planner.Cluster`
    "naming",
    "plugins",  # its interface are entry points; see `examples/plugin`
    "printing",
    "robustness",
    "simulator",
    "units",
    "validation",
    "views",
    "workers",
}


def test_every_public_module_is_there() -> None:
    modules = {module.name for module in pkgutil.iter_modules(planner.__path__)}
    assert modules >= INTERNAL
    # What a module documents may stand under `planner` itself, whose names are those of modules.
    exported = {
        getattr(planner, name).__module__.split(".")[1]
        for name in set(planner.__all__) - {"tune"}  # which needs torch, and stands there itself
        if f"planner.{name}" in DOCUMENTED
    }
    documented = {name.split(".")[1] for name in DOCUMENTED} | exported
    assert modules - INTERNAL - documented == set()


def test_every_exported_name_is_there() -> None:
    for name in planner.__all__:
        assert any(one.startswith(f"planner.{name}") for one in DOCUMENTED) or name in {
            "InvalidInputError",  # of `planner.errors`, which is there as a whole
            "PlannerError",
            "__version__",
        }, name


def test_every_family_has_an_example_that_prints_what_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    for family in PROBLEMS:
        assert any(f"planner.{family}.solve(" in block for block in blocks), family
    examples = doctest.DocTestParser().get_doctest("".join(blocks), {}, "api.md", None, 0)
    monkeypatch.chdir(ROOT)
    said: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert not failed, "".join(said)
    assert tried > 2 * len(PROBLEMS)
