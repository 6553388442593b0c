"""A family is added as CONTRIBUTING.md says, and everything follows."""

import json
import re
from collections.abc import Iterator

import pytest

import planner
from planner.jsonio.interfaces import PROBLEMS
from planner.jsonio.service import decode_answer
from planner.model.errors import InvalidInputError
from tests import schemas
from tests.cli.conftest import line
from tests.cli.documents import ROOT
from tests.cli.line import Line, write
from tests.recipes.halves import HALVES

__all__ = ["line"]


@pytest.fixture(autouse=True)
def _family() -> Iterator[None]:
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


def test_a_family_is_solved_like_any_other_and_its_answers_are_read_again() -> None:
    answer = planner.solve(REQUEST)
    assert (answer["method"], answer["status"], answer["objective_ns"]) == ("exact", "optimal", 15)
    greedy = planner.solve({**REQUEST, "method": "greedy"})
    assert greedy["status"] == "feasible"
    assert (greedy["objective_ns"], greedy["lower_bound_ns"]) == (17, 15)
    assert planner.solve({**REQUEST, "method": "gready"})["error"]["path"] == "method"
    assert planner.solve({**REQUEST, "transfer_ns": [-1]})["error"]["path"] == "transfer_ns[0]"
    schemas.validate(REQUEST, "halves", "request")
    schemas.validate(answer, "halves", "answer")
    typed, timeline = decode_answer(json.dumps(answer).encode())
    assert timeline.end_ns == typed.objective_ns
    for field, wrong in (("lower_bound_ns", 1), ("status", "feasible"), ("timeline", [])):
        with pytest.raises(InvalidInputError) as caught:
            decode_answer(json.dumps({**answer, field: wrong}).encode())
        assert caught.value.path in ("status", "timeline")


def test_its_methods_are_compared_and_drawn(line: Line) -> None:
    write("halves.json", REQUEST)
    out = line("compare halves.json -o plan.json").out
    assert re.search(r"^exact +15 ns +0.00% +optimal", out, flags=re.MULTILINE)
    assert re.search(r"^greedy +17 ns +13.33% +feasible", out, flags=re.MULTILINE)
    drawn = line("draw plan.json").out
    assert drawn.startswith("A plan of 15 ns (halves, exact: proven optimal)")


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
    schemas.validate(asked, "halves", "request")
    schemas.validate(answer, "halves", "answer")


def test_names_that_are_taken_are_refused() -> None:
    class Again(type(HALVES)):  # type: ignore[misc]
        name = "ibatch"

    with pytest.raises(InvalidInputError, match="name: there is a problem ibatch already"):
        planner.register(Again())
