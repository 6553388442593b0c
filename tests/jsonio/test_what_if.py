"""Regret and scenarios in requests of every family that takes them: the examples of its page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.jsonio import schema
from planner.solving.scenarios import SCENARIOS
from tests.cli.printed import check_answer

DOCS = Path(__file__).parents[2] / "docs"
HEADING = "## If the numbers are others"
PAGES = {"fsdp": 7, "overlap": 6, "bml": 6, "yan": 6, "json": 7}
"""The pages with an example, and how many scenarios of the regret mean anything there."""

FAMILIES = [name for name in PAGES if name != "json"]
SLOW_S = 120


def example(page: str) -> dict[str, Any]:
    """Return the request in the section about other numbers."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    (block,) = re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)
    request: dict[str, Any] = json.loads(block)
    return request


def solved(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = planner.solve({**request, **more})
    assert "error" not in answer, answer
    check_answer(answer)
    return answer


def without(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in {*names, "runtime_s"}}


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_the_page_is_answered(page: str) -> None:
    answer = solved(example(page))
    assert len(answer["regret"]) == PAGES[page] <= len(SCENARIOS)
    for row in answer["regret"]:
        assert row["lower_bound_ns"] <= row["best_ns"] <= row["plan_ns"]
        assert row["at_least"] == row["plan_ns"] / row["best_ns"]
        if page != "json":
            assert row["ddp_ns"] is row["layers_ns"] is None
    prospect = answer["prospect"]
    assert prospect["lower_bound_ns"] <= prospect["value_ns"] <= prospect["usual_value_ns"]
    assert prospect["gain"] == pytest.approx(prospect["usual_value_ns"] / prospect["value_ns"])
    assert 1 <= prospect["loss"] <= 1.005
    assert answer["objective_ns"] == round(prospect["loss"] * prospect["usual_ns"])


@pytest.mark.parametrize("page", FAMILIES)
def test_an_answer_has_nothing_of_it_unless_it_is_asked_for(page: str) -> None:
    request = example(page)
    plain = solved({name: request[name] for name in request if name not in FIELDS})
    assert not {"regret", "prospect"} & set(plain)
    asked = solved({name: request[name] for name in request if name not in FIELDS[1:]})
    assert without(asked, "regret") == without(plain)
    likely = solved({name: request[name] for name in request if name != "regret"})
    assert "regret" not in likely
    assert likely["prospect"] == solved(request)["prospect"]
    assert likely["prospect"]["usual_ns"] == plain["objective_ns"]


FIELDS = ("regret", "scenarios", "percentile")


def test_a_plan_for_scenarios_gains_what_the_pages_can_show() -> None:
    """Both were tried by hand: another plan is within 0.5 % of the best, and better over all."""
    assert solved(example("fsdp"))["prospect"]["gain"] > 1.04
    assert solved(example("overlap"))["prospect"]["gain"] > 1.03


@pytest.mark.parametrize("page", FAMILIES)
@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"scenarios": [{}, {"spread": 1}]}, "scenarios[1].spread"),
        ({"scenarios": [{"part": "backward"}]}, "scenarios[0].part"),
        ({"scenarios": [{"bandwidth": 0}]}, "scenarios[0].bandwidth"),
        ({"scenarios": []}, "scenarios"),
        ({"scenarios": [{}], "method": "replan"}, "scenarios"),
        ({"percentile": 90, "regret": False}, "percentile"),
        ({"scenarios": [{}], "percentile": 101}, "percentile"),
        ({"outlook": "mean"}, "outlook"),
    ],
)
def test_what_means_nothing_is_refused(page: str, more: dict[str, Any], path: str) -> None:
    request = {name: value for name, value in example(page).items() if name not in FIELDS}
    error = planner.solve({**request, **more})["error"]
    assert (error["code"], error["path"]) == ("invalid_request", path)


@pytest.mark.parametrize("page", FAMILIES)
def test_a_rank_that_falls_behind_is_one_of_fsdp(page: str) -> None:
    request = {name: value for name, value in example(page).items() if name not in FIELDS}
    answer = planner.solve({**request, "scenarios": [{"late": 0.5}]})
    if page == "fsdp":
        assert answer["prospect"]["value_ns"] >= answer["objective_ns"]
    else:
        assert answer["error"]["path"] == "scenarios[0].late"


def test_a_scenario_of_yan_has_a_latency() -> None:
    request = {name: value for name, value in example("yan").items() if name not in FIELDS}
    error = planner.solve({**request, "scenarios": [{}, {"startup": 0}]})["error"]
    assert error["path"] == "scenarios[1].startup"


@pytest.mark.parametrize("page", FAMILIES)
def test_with_little_time_there_is_an_answer(page: str) -> None:
    answer = planner.solve({**example(page), "time_limit_s": 0.001})
    assert "error" not in answer
    check_answer(answer)
    assert answer["runtime_s"] < SLOW_S


def test_a_start_plan_is_ignored_with_scenarios_and_the_answer_says_so() -> None:
    kept = solved(example("overlap"), with_plan=True)
    again = solved(example("overlap"), start_plan=kept["plan"])
    assert any("start_plan is ignored" in warning for warning in again["warnings"])
    assert without(again, "warnings") == without(kept, "plan", "warnings")


@pytest.mark.parametrize("page", FAMILIES)
def test_the_schema_has_the_fields(page: str) -> None:
    found = schema(page)
    request = found["request"]["$defs"][found["request"]["$ref"].rpartition("/")[2]]
    assert set(FIELDS) <= set(request["properties"])
    answer = found["answer"]["$defs"][found["answer"]["$ref"].rpartition("/")[2]]
    assert {"regret", "prospect"} <= set(answer["properties"])
