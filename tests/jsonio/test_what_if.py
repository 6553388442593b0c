"""Answers beyond the plan: regret and scenarios of every family, advice, targets, contention."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.jsonio import decode_answer, schema
from planner.programs import read_plan
from planner.runtime.measuring.measured import StepTime, compared
from planner.solving.scenarios import SCENARIOS
from planner.solving.targets import TARGETS
from tests import schemas
from tests.cli.printed import check_answer
from tests.jsonio.test_caramel import CHAIN
from tests.jsonio.test_iteration import CLUSTER, REQUEST
from tests.jsonio.test_service import EXAMPLE
from tests.test_programs import CARAMEL

DOCS = Path(__file__).parents[2] / "docs"
HEADING = "## If the numbers are others"
PAGES = {"fsdp": 7, "overlap": 6, "bml": 6, "yan": 6, "json": 7}
"""The pages with an example, and how many scenarios of the regret mean anything there."""

FAMILIES = [name for name in PAGES if name != "json"]
FIELDS = ("regret", "scenarios", "percentile")


def example(page: str) -> dict[str, Any]:
    """Return the request in the section about other numbers."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    (block,) = re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)
    request: dict[str, Any] = json.loads(block)
    return request


def plain(page: str) -> dict[str, Any]:
    return without(example(page), *FIELDS)


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
        assert row["at_most"] == row["plan_ns"] / row["lower_bound_ns"]
        if page != "json":
            assert row["ddp_ns"] is row["layers_ns"] is None
    prospect = answer["prospect"]
    assert prospect["lower_bound_ns"] <= prospect["value_ns"] <= prospect["usual_value_ns"]
    assert prospect["gain"] == pytest.approx(prospect["usual_value_ns"] / prospect["value_ns"])
    assert 1 <= prospect["loss"] <= 1.005
    assert answer["objective_ns"] == round(prospect["loss"] * prospect["usual_ns"])
    read, _ = decode_answer(json.dumps(answer))
    assert len(read.regret) == PAGES[page]


@pytest.mark.parametrize("page", [*FAMILIES, "caramel", "iteration", "ibatch"])
def test_an_answer_has_nothing_of_it_unless_it_is_asked_for(page: str) -> None:
    others = {"caramel": CHAIN, "iteration": REQUEST, "ibatch": EXAMPLE}
    request = others.get(page) or plain(page)
    usual, asked = solved(request), solved(request, regret=True)
    assert not {"regret", "prospect"} & set(usual)
    assert without(asked, "regret") == without(usual)
    assert len(asked["regret"]) == PAGES.get(page, 7)
    if page in FAMILIES:
        likely = solved(without(example(page), "regret"))
        assert "regret" not in likely
        assert likely["prospect"] == solved(example(page))["prospect"]
        assert likely["prospect"]["usual_ns"] == usual["objective_ns"]


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
        ({"scenarios": [{"late": 0.5}]}, "scenarios[0].late"),
        ({"scenarios": [{"bandwidth": 0}]}, "scenarios[0].bandwidth"),
        ({"scenarios": [{}], "method": "replan"}, "scenarios"),
        ({"percentile": 90, "regret": False}, "percentile"),
        ({"scenarios": [{}], "percentile": 101}, "percentile"),
        ({"outlook": "mean"}, "outlook"),
    ],
)
def test_what_means_nothing_is_refused(page: str, more: dict[str, Any], path: str) -> None:
    answer = planner.solve({**plain(page), **more})
    if page == "fsdp" and "late" in path:  # there a rank may fall behind
        assert answer["prospect"]["value_ns"] >= answer["objective_ns"]
        return
    assert (answer["error"]["code"], answer["error"]["path"]) == ("invalid_request", path)


def test_a_scenario_of_yan_has_a_latency() -> None:
    error = planner.solve({**plain("yan"), "scenarios": [{}, {"startup": 0}]})["error"]
    assert error["path"] == "scenarios[1].startup"


@pytest.mark.parametrize("page", FAMILIES)
def test_with_little_time_there_is_an_answer(page: str) -> None:
    assert solved(example(page), time_limit_s=0.001)["runtime_s"] < 120


def test_a_start_plan_is_ignored_with_scenarios_and_the_answer_says_so() -> None:
    kept = solved(example("overlap"), with_plan=True)
    again = solved(example("overlap"), start_plan=kept["plan"])
    assert any("start_plan is ignored" in warning for warning in again["warnings"])
    assert without(again, "warnings") == without(kept, "plan", "warnings")


@pytest.mark.parametrize(
    ("request_", "longer"),
    [
        (CHAIN, {"ops": [{**op, "ns": op["ns"] * 12 // 10} for op in CHAIN["ops"]]}),
        (REQUEST, {"computation_scale": 1.2}),
    ],
)
def test_computation_that_takes_longer_is_computation_that_takes_longer(
    request_: dict[str, Any], longer: dict[str, Any]
) -> None:
    """A row is what a request with these numbers says of the same methods."""
    row = solved(request_, regret=True)["regret"][1]
    assert (row["computation"], row["startup"], row["bandwidth"], row["late"]) == (1.2, 1, 1, 0)
    for name, method in (("ddp_ns", "ddp"), ("layers_ns", "layer_by_layer")):
        assert row[name] == solved(request_, **longer, method=method)["objective_ns"]
    best = solved(request_, **longer)
    assert row["best_ns"] <= best["objective_ns"]
    assert row["lower_bound_ns"] <= best["lower_bound_ns"]


@pytest.mark.parametrize("request_", [CHAIN, REQUEST])
def test_only_what_plans_by_itself_gives_advice(request_: dict[str, Any]) -> None:
    answer = solved(request_)
    advice = answer["advice"]
    assert advice["gain"] == advice["ddp_ns"] / answer["objective_ns"]
    assert advice["keep_ddp"] == (advice["gain"] < 1.03)
    assert advice["ddp_ns"] <= solved(request_, method="ddp")["objective_ns"]
    assert advice["gain"] <= advice["at_most"]
    alone = solved(request_, method="layer_by_layer", regret=True)
    assert "advice" not in alone
    assert len(alone["regret"]) == 7


def test_without_a_plan_there_is_neither() -> None:
    cluster = {**CLUSTER, "memory_bytes": 5}
    answer = planner.solve({**REQUEST, "cluster": cluster, "regret": True})
    assert answer["status"] == "infeasible"
    assert not {"advice", "regret"} & answer.keys()


# ---
# Targets.


@pytest.mark.parametrize("name", TARGETS)
def test_an_answer_says_what_it_was_made_for(name: str) -> None:
    answer = planner.solve({**CARAMEL, "target": name})
    assert answer["method"] == "buckets"
    assert answer["barrier"]
    assert answer["target"]["name"] == name
    assert TARGETS[name].version in answer["target"]["version"]
    assert answer["targets"].keys() == TARGETS.keys()
    assert answer["targets"][name]["plan_ns"] == answer["objective_ns"]
    default = planner.solve({**CARAMEL, "target": name, "method": name})
    assert default["objective_ns"] == answer["targets"][name]["default_ns"]
    assert default["lower_bound_ns"] == answer["lower_bound_ns"] <= answer["objective_ns"]
    whole = planner.solve({**REQUEST, "target": name, "algorithms": ["ring", "ps"]})
    assert whole["synchronisation"]["algorithm"] == "ring"
    assert whole["synchronisation"]["mode"] == "replicated"
    priced = whole["targets"][name]
    assert priced["plan_ns"] == whole["objective_ns"] <= priced["default_ns"]


def test_planner_is_no_target() -> None:
    usual, same = planner.solve(CARAMEL), planner.solve({**CARAMEL, "target": "planner"})
    assert "target" not in same
    assert without(usual) == without(same)


def test_times_beyond_63_bits_are_left_out() -> None:
    """A plan of chunks is short where whole messages take longer than can be said."""
    network = {
        "startup_ns": 0,
        "ns_per_byte": 4 * 10**18,
        "depths": {"2": {"startup_ns": 5, "ns_per_byte": 1}},
    }
    answer = planner.solve({**CARAMEL, "network": network})
    assert answer["objective_ns"] < 2**63
    assert "targets" not in answer
    refused = planner.solve({**CARAMEL, "network": network, "target": "ddp"})
    assert refused["error"]["path"] == "network"


@pytest.mark.parametrize(
    ("problem", "names"), [("iteration", TARGETS), ("caramel", TARGETS), ("ibatch", ("fsdp2",))]
)
def test_schemas_list_the_targets_that_a_problem_takes(problem: str, names: list[str]) -> None:
    request = schema(problem)["request"]["$defs"][f"{problem.title()}Request"]
    assert request["properties"]["target"]["enum"] == [*names, "planner"]


# ---
# Plans that count contention with computation.

BESIDE = {"startup_ns": 40, "ns_per_byte": 0.5, "slowdown": 1.25}
CLUSTERED: dict[str, Any] = {**REQUEST, "cluster": {**CLUSTER, "interference": BESIDE}}
BATCHES: dict[str, Any] = {
    "problem": "ibatch",
    "layer_bytes": [100, 200, 300, 1],
    "compute_ns": [500, 600, 700, 10],
    "network": {"startup_ns": 100, "ns_per_byte": 2, "interference": BESIDE},
}


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (CLUSTERED, {}),
        (CLUSTERED, {"modes": ["sharded"]}),
        (CLUSTERED, {"method": "ddp"}),
        (BATCHES, {}),
        (BATCHES, {"direction": "push"}),
        (BATCHES, {"direction": "push", "method": "layer_by_layer"}),
    ],
)
def test_answers_beside_contention_agree_with_themselves(
    request_: dict[str, Any], changes: dict[str, Any]
) -> None:
    name = "cluster" if "cluster" in request_ else "network"
    bare = {**request_, name: without(request_[name], "interference")}
    answer, alone = solved(request_, **changes), solved(bare, **changes)
    schemas.validate({**request_, **changes}, answer["problem"], "request")
    read = read_plan(json.dumps(answer).encode())
    _, timeline = decode_answer(json.dumps(answer).encode())
    assert timeline.intervals
    assert alone["objective_ns"] <= answer["objective_ns"]
    assert answer["slowed_ns"] >= 0
    assert "slowed_ns" not in alone
    assert answer["lower_bound_ns"] >= alone["lower_bound_ns"] or changes
    steps = [StepTime(*(10**6 for _ in StepTime._fields))] * 2
    predicted = {time.name: time.predicted_ns for time in compared([read], steps)}
    assert answer["objective_ns"] in predicted.values()


def test_contention_that_takes_nothing_is_not_there() -> None:
    cluster = {**CLUSTER, "interference": {"slowdown": 1}}
    assert "slowed_ns" not in solved(REQUEST, cluster=cluster)
