"""Group scheduling as JSON: the contract, bad input, answers read again, the documentation."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import planner
from planner.families.drizzle import evaluate, solve
from planner.jsonio import PROBLEMS, decode_answer, decode_request, reply, schema
from planner.jsonio.what_if import answer_request
from planner.model.errors import InvalidInputError
from planner.solving.views import Groups
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from tests import schemas
from tests.drizzle.drizzle_strategies import problems

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


def ask(request: Any) -> dict[str, Any]:
    """Ask as JSON text; the library call must answer the same, as the schema says."""
    answer: dict[str, Any] = json.loads(reply(json.dumps(request).encode()).data)
    called = planner.solve(request)
    assert json.loads(json.dumps({**called, "runtime_s": 0})) == {**answer, "runtime_s": 0}
    kind = "error" if "error" in answer else "answer"
    schemas.validate(answer, "drizzle", kind)
    return answer


def test_the_contracts_example() -> None:
    schemas.validate(CONTRACT, "drizzle", "request")
    answer = ask(CONTRACT)
    assert answer["method"] == "exact"
    assert answer["status"] == "optimal"
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


def test_stages_come_with_their_triggers() -> None:
    answer = ask({**without("tasks"), "stages": STAGES[::-1]})
    assert [row["name"] for row in answer["stages"]] == ["gradients", "aggregation"]
    assert [row["triggers"] for row in answer["stages"]] == [0, 256]
    assert [row["triggers_previous"] for row in answer["stages"]] == [64, 0]
    assert answer == {**ask({**CONTRACT, "tasks": 320, "stages": STAGES[::-1]}), **_time(answer)}


def _time(answer: dict[str, Any]) -> dict[str, Any]:
    return {"runtime_s": answer["runtime_s"]}


def test_what_need_not_be_given() -> None:
    short = without("group_ns", "constant_task_ns", "max_group_ns")
    answer = ask(short)
    assert answer["group_size"] == 3
    assert "max_group_ns" not in answer
    assert "largest_group_size" not in answer
    nothing = ask({**short, "compute_ns": 0, "task_ns": 0})
    assert nothing["overhead_of_compute"] is None
    assert nothing["overhead"] == 0


def test_decimals_are_what_is_written() -> None:
    answer = ask({**without("max_group_ns"), "compute_ns": 900, "tasks": 1, "task_ns": 100})
    assert answer["group_size"] == 3
    tenth = {**without("max_group_ns"), "compute_ns": 900, "tasks": 1, "max_overhead": 0.1}
    assert ask({**tenth, "task_ns": 100.0})["group_size"] == 1
    assert ask({**tenth, "task_ns": 100.5})["group_size"] == 2


@pytest.mark.parametrize(
    ("change", "binding", "said"),
    [
        (
            {"constant_task_ns": 10000, "max_overhead": 0.001},
            ["max_overhead"],
            "always above 0.00283638",
        ),
        ({"max_group_ns": 10**8}, ["max_group_ns"], "even a group of one"),
        ({"max_overhead": 0.0001}, ["max_overhead", "max_group_ns"], "at least 1110"),
    ],
)
def test_infeasible_is_an_answer(change: dict[str, Any], binding: list[str], said: str) -> None:
    answer = ask({**CONTRACT, **change})
    assert answer["status"] == "infeasible"
    assert answer["binding"] == binding
    assert said in answer["reason"]
    assert answer["objective_ns"] is None
    assert "group_size" not in answer
    with pytest.raises(InvalidInputError, match=r"^group_size: the answer \(infeasible\) holds no"):
        decode_answer(json.dumps(answer).encode())
    typed = PROBLEMS["drizzle"]
    request = decode_request(json.dumps({**CONTRACT, **change}).encode())
    assert (
        answer_request(typed, request).headline() == "There is no plan (drizzle, exact: infeasible)"
    )


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"max_overhead": 1.5}, "max_overhead", "expected a number > 0 and < 1, got 3/2"),
        ({"max_overhead": "5 %"}, "max_overhead", "expected a number > 0, got '5 %'"),
        ({"max_overhed": 1}, "max_overhed", "unknown field; did you mean 'max_overhead'?"),
        ({"method": "best"}, "method", "expected one of auto, exact, got 'best'"),
        ({"time_limit_s": 0}, "time_limit_s", "expected a number > 0, got 0"),
        (
            {"stages": STAGES},
            "tasks",
            "expected as many as the stages have (320), got 256",
        ),
        (
            {"stages": [{"name": "a", "tasks": 256, "after": ["a"]}]},
            "stages[0].after",
            "the stages form a cycle: a -> a",
        ),
        (
            {"stages": [{"name": "a", "tasks": 256, "ater": []}]},
            "stages[0].ater",
            "unknown field; did you mean 'after'?",
        ),
    ],
)
def test_what_cannot_be_asked(change: dict[str, Any], path: str, message: str) -> None:
    answer = ask({**CONTRACT, **change})
    assert answer["error"] == {"code": "invalid_request", "path": path, "message": message}


@pytest.mark.parametrize("name", ["compute_ns", "task_ns", "max_overhead", "tasks"])
def test_what_is_missing(name: str) -> None:
    error = ask(without(name))["error"]
    assert error["path"] == name
    assert error["message"].startswith("missing")
    assert schemas.fits(without(name), "drizzle", "request") == (name == "tasks")


def test_the_schema_gives_counts_no_unit() -> None:
    rows = schema("drizzle")["answer"]["$defs"]["TriggersAnswer"]["properties"]
    for name in ("tasks", "triggers", "triggers_previous"):
        assert "description" not in rows[name]


def test_the_schema_knows_the_range_of_a_share() -> None:
    for share, good in ((0.5, True), (0, False), (1, False)):
        request = {**CONTRACT, "max_overhead": share}
        assert schemas.fits(request, "drizzle", "request") == good
        assert ("error" not in ask(request)) == good


@settings(max_examples=100)
@given(problems())
def test_the_answer_is_the_typed_result(problem: planner.drizzle.Problem) -> None:
    interface = PROBLEMS["drizzle"]
    from planner.jsonio.drizzle import answer as answer_of

    result = solve(problem)
    answer = answer_of(problem, result)
    if result.plan is None:
        return
    priced = evaluate(problem, result.plan)
    assert answer.iteration_ns == priced.iteration_ns
    drawn = interface.view(answer)
    assert isinstance(drawn, Groups)
    assert drawn.chosen.group_size == result.plan.group_size
    assert drawn.chosen.group_time_ns == result.objective_ns
    assert not drawn.breaks(drawn.chosen)
    assert all(
        drawn.breaks(point) for point in drawn.points if point.group_size < result.plan.group_size
    )


def changed(answer: dict[str, Any], steps: list[Any], to: Any) -> bytes:
    copy = json.loads(json.dumps(answer))
    place = copy
    for step in steps[:-1]:
        place = place[step]
    if to is None:
        del place[steps[-1]]
    else:
        place[steps[-1]] = to
    return json.dumps(copy).encode()


@pytest.mark.parametrize(
    ("steps", "to", "path"),
    [
        (["overhead"], None, "overhead"),
        (["overhead"], 0.5, "curve"),
        (["group_size"], 5, "curve"),
        (["curve"], None, "curve"),
        (["lower_bound_ns"], 10**10, "lower_bound_ns"),
        (["lower_bound_ns"], 10**9, "status"),
        (["status"], "feasible", "status"),
        (["status"], "infeasible", "status"),
        (["max_overhead"], 2, "max_overhead"),
        (["max_overhead"], 0.03, "max_overhead"),
        (["max_group_ns"], 1, "max_group_ns"),
        (["curve", 1, "overhead"], 0.5, "curve[1].overhead"),
        (["curve", 1, "group_time_ns"], 0, "curve[1].group_time_ns"),
        (["curve", 0, "group_time_ns"], 2**62, "curve[1].group_time_ns"),
        (["curve", 1, "overhead"], 1.5, "curve[1].overhead"),
        (["curve", 1, "group_size"], 1, "curve[1].group_size"),
    ],
)
def test_an_answer_that_contradicts_itself(steps: list[Any], to: Any, path: str) -> None:
    answer = ask(CONTRACT)
    decode_answer(json.dumps(answer).encode())
    with pytest.raises(InvalidInputError) as caught:
        decode_answer(changed(answer, steps, to))
    assert caught.value.path == path


def test_an_answer_without_its_objective() -> None:
    answer = {**ask(CONTRACT), "objective_ns": None}
    with pytest.raises(InvalidInputError, match="objective_ns: missing"):
        decode_answer(json.dumps(answer).encode())


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
