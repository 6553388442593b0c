"""The page of the Python interface has a word on every public package."""

import pkgutil
import re
from pathlib import Path

import planner

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^\.\. auto\w+:: (planner[\w.]*)", PAGE, flags=re.MULTILINE)

# What the commands and the planners are built of, not an interface.
INTERNAL = {
    "__main__",
    "beside",
    "bucketing",
    "cli",  # its interface are the commands
    "deadline",
    "layer_parameters",
    "machine",
    "methods",
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
        for name in planner.__all__
        if f"planner.{name}" in DOCUMENTED
    }
    documented = {name.split(".")[1] for name in DOCUMENTED} | exported
    assert modules - INTERNAL - documented == set()


def test_every_exported_name_is_there() -> None:
    for name in planner.__all__:
        assert any(one.startswith(f"planner.{name}") for one in DOCUMENTED) or name in {
            "InvalidInputError",  # of `planner.errors`, which is there as a whole
            "PlannerError",
        }, name
