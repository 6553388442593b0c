"""Pages hold what there is: modules, statuses and variables, JSON fields, examples by hand."""

import doctest
import json
import pkgutil
import re
from typing import Any

import json_reference as reference
import pytest

import planner
from planner import __main__ as starting
from planner.cli.interrupting import Exit
from planner.jsonio import PROBLEMS, schema
from tests.cli.documents import ROOT
from tests.cli.line import commands

API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^\.\. auto\w+:: (planner[\w.]*)", API, flags=re.MULTILINE)

# What the commands and the planners are built of, not an interface.
ROOMS = ("model", "solving", "families")
INTERNAL = {
    "planner.__main__",
    "planner.cli",  # its interface are the commands
    # Tables of `measured` are made by files, and read by `planner.Cluster`.
    *(f"planner.model.{one}" for one in ("machine", "measured", "units", "loading", "validation")),
    "planner.solving.plugins",  # its interface are entry points; see `examples/plugin`
    *(f"planner.solving.{one}" for one in ("bucketing", "contention", "diagnostics", "methods")),
    *(f"planner.solving.{one}" for one in ("local_search", "pareto", "simulator", "tie_break")),
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
    blocks = re.findall(r"^```python\n(.*?)^```$", API, flags=re.DOTALL | re.MULTILINE)
    for family in PROBLEMS:
        assert any(f"planner.{family}.solve(" in block for block in blocks), family
    examples = doctest.DocTestParser().get_doctest("".join(blocks), {}, "api.md", None, 0)
    monkeypatch.chdir(ROOT)
    said: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert not failed, "".join(said)
    assert tried > 2 * len(PROBLEMS)


PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
SOURCES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "planner").rglob("*.py")}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_exit_status_is_listed_and_commands_end_with_no_other() -> None:
    listed = re.findall(r"^\| (\d+) \|", section("Exit status"), flags=re.MULTILINE)
    assert [int(status) for status in listed] == sorted(Exit)
    assert starting._INTERRUPTED == Exit.INTERRUPTED
    commanding = [text for path, text in SOURCES.items() if path.parent == ROOT / "planner" / "cli"]
    numbers = re.findall(r"^ +return (\d+)$", "\n".join(commanding), flags=re.MULTILINE)
    assert len(numbers) > 10
    assert {*map(int, numbers)} <= set(Exit)


def test_every_variable_of_the_code_is_listed() -> None:
    text = "\n".join(SOURCES.values())
    read = r'environ(?:\.get\(|\[)\s*"(\w+)"'
    named = r'"((?:PLANNER|TORCHELASTIC|GLOO|MASTER|WORLD|LOCAL_WORLD)_\w+|RANK)"'
    used = set(re.findall(f"{read}|{named}", text))
    variables = {one for pair in used for one in pair if one}
    variables |= set(re.findall(r"PLANNER_[A-Z]+", text))
    listed = set(re.findall(r"`([A-Z_]+)`", section("Environment")))
    assert variables == listed


def test_what_the_page_names_is_there() -> None:
    known = {name for command in commands() for name in command.options}
    assert {"--quiet", "--version", "--problem", "--help"} <= known
    assert set(re.findall(r"--[a-z]+", PAGE)) <= known


def properties(value: Any) -> set[str]:
    """Return the names of all properties anywhere in a schema."""
    if isinstance(value, dict):
        own = set(value.get("properties", ())) if value.get("type") == "object" else set()
        return own.union(*map(properties, value.values()))
    return set().union(*map(properties, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("name", schema())
def test_every_property_has_a_row(name: str) -> None:
    found = schema(name)
    text = reference.page(name, found)
    rows: list[list[str]] = []
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        assert len({len(row) for row in cells}) == 1
        rows += cells
    parts = {key: found[key] for key in ("request", "answer") if key in found} or found
    # JSON Schema quotes the names of properties, so every name is found, whatever the tables say.
    assert {row[0].strip(" `") for row in rows} >= properties(json.loads(json.dumps(parts)))


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_field_of_a_request_is_explained(name: str) -> None:
    """In the meanings written by hand, or in the schema by more than a unit."""
    asked = reference.MEANINGS[name]["request"]
    asked = {field for fields in asked for field in fields.split(", ")}
    found = schema(name)["request"]
    main = found["$defs"][found["$ref"].rpartition("/")[2]]
    explained = {
        field
        for field, shape in main["properties"].items()
        if shape.get("description", "nanoseconds") not in reference.UNITS
    }
    assert set(main["properties"]) - {"problem", "time_limit_s"} - asked - explained == set()


def test_every_meaning_is_of_a_field() -> None:
    for name in set(reference.MEANINGS) - {"common"}:
        found = schema(name)
        for part, texts in reference.MEANINGS[name].items():
            explained = {field for fields in texts for field in fields.split(", ")}
            of = found["$defs"][part] if "$defs" in found else found[part]
            fields = set(of["properties"]) if "$defs" in found else properties(of)
            assert explained - fields == set()


SECTION = re.compile(r"^## An example by hand\n(.*?)^## ", re.DOTALL | re.MULTILINE)


def example(page: str) -> tuple[dict[str, Any], list[list[list[str]]]]:
    """Return the request of a page's example, and the rows of its tables."""
    found = SECTION.search((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert found
    (request,) = re.findall(r"```json\n(.*?)```", found[1], re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", found[1], re.MULTILINE)
    rows = [[line.strip("|\n").split("|") for line in table.splitlines()[2:]] for table in tables]
    return json.loads(request), [[[cell.strip() for cell in row] for row in one] for one in rows]


def spans(text: str) -> list[tuple[int, int]]:
    """Return the intervals in a cell, such as 5–10."""
    return [(int(a), int(b)) for a, b in re.findall(r"(\d+)–(\d+)", text)]


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_the_iteration_of_fsdp_adds_up() -> None:
    request, (steps, moments) = example("fsdp.md")
    answer: dict[str, Any] = planner.solve(request)
    assert (answer["status"], answer["objective_ns"], answer["exposed_ns"]) == ("optimal", 58, 20)
    for row, step in zip(steps, answer["steps"], strict=True):
        assert row[1] == f"{step['unit']}, {step['phase']}"
        shown = [int(row[place]) for place in (2, 4, 5)]
        assert shown == [step[name] for name in ("ready_ns", "start_ns", "end_ns")]
    for column, name in ((3, "gathers"), (6, "reduces")):
        sent = {one["step"]: one for one in answer[name]}
        for number, row in enumerate(steps):
            assert ("issued" in row[column]) == (number in sent)
            if number in sent:
                one = sent[number]
                assert f"issued at {one['issued_ns']}," in row[column]
                assert spans(row[column]) == [(one["start_ns"], one["end_ns"])]
    levels = {f"{one['step']}, `{one['stage']}`": one for one in answer["levels"]}
    for moment, *parts, whole in moments:
        level = levels[moment]
        held = [level[name] for name in ("parameters", "gradients", "activations", "buffers")]
        assert [sum(numbers(part)) for part in parts] == held
        assert int(whole) == sum(held) + answer["state_bytes"]
    assert max(int(row[-1]) for row in moments) == answer["peak_bytes"]
    for memory_bytes, expected in ((49, 48), (43, None)):
        other = planner.solve({**request, "memory_bytes": memory_bytes})
        assert other["objective_ns"] == expected


@pytest.mark.parametrize(
    ("change", "makespan", "exposed", "table"),
    [
        ({"method": "own_order"}, 33, 24, None),
        ({"method": "greedy"}, 26, 17, 0),
        ({}, 22, 13, 1),
        ({"memory_limit_bytes": 42}, 26, 17, None),
    ],
)
def test_overlap(change: dict[str, Any], makespan: int, exposed: int, table: int | None) -> None:
    request, tables = example("overlap.md")
    answer: dict[str, Any] = planner.solve({**request, **change})
    assert (answer["objective_ns"], answer["exposed_ns"]) == (makespan, exposed)
    if table is not None:
        rows = tables[table]
        sent = [(one["start_ns"], one["end_ns"]) for one in answer["transfers"]]
        assert [span for row in rows for span in spans(row[2])] == sent
        assert spans(rows[-1][1])[-1][1] == makespan
        assert max(numbers(row[3])[-1] for row in rows) == answer["peak_bytes"]
