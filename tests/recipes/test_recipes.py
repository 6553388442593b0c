"""A method, a family and a format are added as CONTRIBUTING.md says, and everything follows."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.formats import READERS, Reader
from planner.jsonio.interfaces import PROBLEMS
from planner.jsonio.service import decode_answer
from planner.model.errors import InvalidInputError
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance
from tests import schemas
from tests.cli.conftest import line
from tests.cli.documents import LINK, ROOT
from tests.cli.line import Line, read, write
from tests.jsonio.test_iteration import REQUEST as ITERATION
from tests.recipes.halves import HALVES

__all__ = ["line"]

ONE_LINE = """
import json, sys
from planner.solving.family import Family
from planner.solving.methods import named

def with_toy(family):
    methods = family.own_methods
    family.own_methods = {**methods, "toy": named("toy", methods["auto"])}  # the one line

Family.__init_subclass__ = classmethod(with_toy)  # in each of them

import planner
from planner.cli import main
from planner.jsonio.schemas import schema

for line in sys.stdin:
    request = json.loads(line)
    answer = planner.solve({**request, "method": "toy"})
    best = planner.solve(request)
    names = json.dumps(schema(request["problem"])["request"])
    print(json.dumps([answer.get("method"), answer["objective_ns"] == best["objective_ns"],
                      answer["status"] == best["status"], '"toy"' in names]))
    file = sys.argv[1]
    open(file, "w").write(line)
    assert main(["compare", file, "--methods", "toy,auto"]) == 0
"""
"""What a new line in `own_methods` does, in every family."""


def examples() -> list[dict[str, Any]]:
    """Return a request of every family: those of the reference, and an iteration."""
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = {}
    for block in re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL):
        plain = not any(part in block for part in ("…", "{...}", '"scenarios"'))
        if plain and block.startswith('{"problem"'):
            request = json.loads(block)
            found.setdefault(request["problem"], {**request, "method": "auto"})
    found["iteration"] = ITERATION
    return list(found.values())


@pytest.mark.slow
def test_a_method_is_a_file_and_a_line(tmp_path: Path) -> None:
    requests = [example for example in examples() if example["problem"] != "bml"]
    # Without failures `planner compare` shows algorithms on other networks too, and no method.
    failed = {"nics": [[[0, 0], 0]]}
    bcube = {"problem": "bml", "n": 2, "k": 2, "gradient_bytes": 99, "link_bytes_per_s": 1e9}
    requests.append({**bcube, "failed": failed})
    assert len({request["problem"] for request in requests}) == 9
    done = subprocess.run(
        [sys.executable, "-c", ONE_LINE, str(tmp_path / "request.json")],
        cwd=ROOT,
        input="\n".join(map(json.dumps, requests)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert told == [["toy", True, True, True]] * 9
    assert len(re.findall(r"^toy ", done.stdout, flags=re.MULTILINE)) >= 9


@pytest.fixture
def family() -> Iterator[None]:
    """Register the family that CONTRIBUTING shows, and take it away again."""
    planner.register(HALVES)
    yield
    del PROBLEMS["halves"]


def test_contributing_shows_the_whole_family() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    code = (ROOT / "tests" / "recipes" / "halves.py").read_text(encoding="utf-8")
    assert shown == code
    assert len(code.splitlines()) < 150


REQUEST = {"problem": "halves", "transfer_ns": [8, 7, 6, 5, 4]}


@pytest.mark.usefixtures("family")
def test_a_family_is_solved_like_any_other() -> None:
    answer = planner.solve(REQUEST)
    assert (answer["method"], answer["status"], answer["objective_ns"]) == ("exact", "optimal", 15)
    greedy = planner.solve({**REQUEST, "method": "greedy"})
    assert greedy["status"] == "feasible"
    assert (greedy["objective_ns"], greedy["lower_bound_ns"]) == (17, 15)
    assert planner.solve({**REQUEST, "method": "gready"})["error"]["path"] == "method"
    assert planner.solve({**REQUEST, "transfer_ns": [-1]})["error"]["path"] == "transfer_ns[0]"
    schemas.validate(REQUEST, "halves", "request")
    schemas.validate(answer, "halves", "answer")


@pytest.mark.usefixtures("family")
def test_its_answers_are_read_again_and_checked() -> None:
    answer = planner.solve(REQUEST)
    typed, timeline = decode_answer(json.dumps(answer).encode())
    assert timeline.end_ns == typed.objective_ns
    for field, wrong in (("lower_bound_ns", 1), ("status", "feasible"), ("timeline", [])):
        with pytest.raises(InvalidInputError) as caught:
            decode_answer(json.dumps({**answer, field: wrong}).encode())
        assert caught.value.path in ("status", "timeline")


@pytest.mark.usefixtures("family")
def test_its_methods_are_compared_and_drawn(line: Line) -> None:
    write("halves.json", REQUEST)
    out = line("compare halves.json -o plan.json").out
    assert re.search(r"^exact +15 ns +0.00% +optimal", out, flags=re.MULTILINE)
    assert re.search(r"^greedy +17 ns +13.33% +feasible", out, flags=re.MULTILINE)
    drawn = line("draw plan.json").out
    assert drawn.startswith("A plan of 15 ns (halves, exact: proven optimal)")


@pytest.mark.usefixtures("family")
def test_it_has_regret_scenarios_and_warm_starts() -> None:
    asked = {**REQUEST, "regret": True, "scenarios": [{}, {"bandwidth": 0.5}], "with_plan": True}
    answer = planner.solve(asked)
    assert answer["prospect"]["value_ns"] == 22.5
    assert [row["plan_ns"] for row in answer["regret"]] == [15, 15, 15, 15, 22, 12, 15]
    again = planner.solve({**REQUEST, "method": "replan", "start_plan": answer["plan"]})
    assert (again["objective_ns"], again["links"]) == (15, answer["links"])
    other = {"kind": "halves.Plan", "plan": {"links": [0]}}
    refused = planner.solve({**REQUEST, "method": "replan", "start_plan": other})
    assert (refused["status"], refused["binding"]) == ("infeasible", ["start_plan"])
    ignored = planner.solve({**REQUEST, "start_plan": other})
    assert "start_plan is ignored" in ignored["warnings"][0]
    schemas.validate(asked, "halves", "request")
    schemas.validate(answer, "halves", "answer")


def test_names_that_are_taken_are_refused() -> None:
    class Again(type(HALVES)):  # type: ignore[misc]
        name = "ibatch"

    with pytest.raises(InvalidInputError, match="name: there is a problem ibatch already"):
        planner.register(Again())


def read_lines(
    data: bytes, *, name: str, source: str, batch_size: int | None = None
) -> tuple[Profile, tuple[str, ...]]:
    """Read a format: bytes of parameters, a layer a line."""
    try:
        sizes = [int(line) for line in data.split()]
    except ValueError:
        raise InvalidInputError("", "expected a number a line") from None
    layers = tuple(Layer(f"l{place}", 1, 2, size) for place, size in enumerate(sizes))
    origin = Provenance("imported", source)
    return Profile(name, layers, origin, batch_size=batch_size), ("times are made up",)


def test_a_format_is_a_function_and_a_line(monkeypatch: pytest.MonkeyPatch, line: Line) -> None:
    monkeypatch.setitem(READERS, "lines", Reader(read_lines, "sizes, a layer a line"))
    write("little.sizes", "40\n80\n")
    warned = line("import lines little.sizes -o little.json").err
    assert warned == "planner: warning: little.sizes: times are made up\n"
    document = read("little.json")
    assert (document["name"], len(document["layers"])) == ("little", 2)
    line("compare little.json --methods exact", LINK)
    write("little.sizes", "forty")
    line.error("import lines little.sizes")
