"""Group scheduling as JSON: the contract, bad input, answers read again, the documentation."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.jsonio import PROBLEMS, decode_answer, decode_request, reply, schema
from planner.jsonio.what_if import answer_request
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from tests import schemas
from tests.jsonio.test_service import ask

ROOT = Path(__file__).parents[2]
CONTRACT: dict[str, Any] = {
    "problem": "drizzle",
    "tasks": 256,
    "compute_ns": 900000000,
    "group_ns": 0,
    "task_ns": 390000,
    "constant_task_ns": 0,
    "max_overhead": 0.05,
    "max_group_ns": 20000000000,
}
STAGES: list[dict[str, Any]] = [
    {"name": "gradients", "tasks": 256},
    {"name": "aggregation", "tasks": 64, "after": ["gradients"]},
]


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in CONTRACT.items() if name not in names}


def test_the_contracts_example() -> None:
    answer = ask(CONTRACT)
    assert (answer["method"], answer["status"]) == ("exact", "optimal")
    assert answer["group_size"] == 3
    assert answer["objective_ns"] == answer["lower_bound_ns"] == 3 * 900000000 + 256 * 390000
    assert answer["iteration_ns"] == 933280000
    assert answer["overhead"] == pytest.approx(33.28 / 933.28)
    assert answer["overhead_of_compute"] == pytest.approx(33.28 / 900)
    assert answer["speedup"] == pytest.approx(999.84 / 933.28)
    assert answer["largest_group_size"] == 22
    assert "stages" not in answer
    assert {point["group_size"] for point in answer["curve"]} >= {1, 2, 3, 22}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "echo"),
    [
        ({"compute_ns": 10, "task_ns": 1, "max_overhead": 0.99999999999999999999999999}, 1),
        ({"compute_ns": 10, "task_ns": 0, "max_overhead": 1e-400}, 0),
        ({"compute_ns": 0, "task_ns": 0, "max_overhead": 1e-400}, 0),
    ],
)
def test_limits_that_are_rounded_to_an_end_are_read_again(
    change: dict[str, Any], echo: int, tmp_path: Path
) -> None:
    """Written out: as a float the limit would already be 0 or 1."""
    limit = {1: "0." + "9" * 26, 0: "1e-400"}[echo]
    text = json.dumps({**without("max_overhead"), **change, "max_overhead": 0.5})
    data = reply(text.replace('"max_overhead": 0.5', f'"max_overhead": {limit}').encode()).data
    answer, content = decode_answer(data)
    assert answer.max_overhead == content.max_overhead == echo
    chart = Chart("limits", content)
    assert "█ chosen" in DRAWINGS["drizzle"].text(chart, 80)
    DRAWINGS["drizzle"].save(chart, tmp_path / "p.svg")


def test_numbers_of_numpy_are_what_they_print() -> None:
    numpy = pytest.importorskip("numpy")
    wrapped = {**CONTRACT, "task_ns": numpy.float64(390000.5), "max_overhead": numpy.float64(0.05)}
    plain = {**CONTRACT, "task_ns": 390000.5}
    found = planner.solve(wrapped)
    assert {**found, "runtime_s": 0} == {**ask(plain), "runtime_s": 0}


def test_stages_come_with_their_triggers() -> None:
    answer = ask({**without("tasks"), "stages": STAGES[::-1]})
    schemas.validate(answer, "drizzle", "answer")
    assert [row["name"] for row in answer["stages"]] == ["gradients", "aggregation"]
    assert [row["triggers"] for row in answer["stages"]] == [0, 256]
    assert [row["triggers_previous"] for row in answer["stages"]] == [64, 0]
    both = ask({**CONTRACT, "tasks": 320, "stages": STAGES[::-1]})
    assert {**answer, "runtime_s": 0} == {**both, "runtime_s": 0}


def test_what_need_not_be_given() -> None:
    short = without("group_ns", "constant_task_ns", "max_group_ns")
    answer = ask(short)
    assert answer["group_size"] == 3
    assert "max_group_ns" not in answer
    assert "largest_group_size" not in answer
    nothing = ask({**short, "compute_ns": 0, "task_ns": 0})
    assert nothing["overhead_of_compute"] is None
    assert nothing["overhead"] == 0


@pytest.mark.parametrize(
    ("change", "binding", "said"),
    [
        ({"constant_task_ns": 10000, "max_overhead": 0.001}, ["max_overhead"], "always above 0.0"),
        ({"max_group_ns": 10**8}, ["max_group_ns"], "even a group of one"),
        ({"max_overhead": 0.0001}, ["max_overhead", "max_group_ns"], "at least 1110"),
    ],
)
def test_infeasible_is_an_answer(change: dict[str, Any], binding: list[str], said: str) -> None:
    answer = ask({**CONTRACT, **change})
    assert (answer["status"], answer["binding"]) == ("infeasible", binding)
    assert said in answer["reason"]
    typed = PROBLEMS["drizzle"]
    request = decode_request(json.dumps({**CONTRACT, **change}).encode())
    assert (
        answer_request(typed, request).headline() == "There is no plan (drizzle, exact: infeasible)"
    )


def test_the_schema_gives_counts_no_unit() -> None:
    rows = schema("drizzle")["answer"]["$defs"]["TriggersAnswer"]["properties"]
    for name in ("tasks", "triggers", "triggers_previous"):
        assert "description" not in rows[name]


def test_the_example_of_the_documentation() -> None:
    page = (ROOT / "docs" / "drizzle.md").read_text(encoding="utf-8")
    request, shown = (
        json.loads(block)
        for block in re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    )
    assert request == json.loads((ROOT / "data/drizzle/inception64.json").read_bytes())
    answer = ask(request)
    assert set(answer) - set(shown) == {"runtime_s", "curve"}
    assert {name: answer[name] for name in shown} == shown
