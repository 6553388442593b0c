"""Answers beyond the plan: regret and scenarios of every family, advice, targets, contention."""

import json
from typing import Any

import pytest

import planner
from planner.jsonio import decode_answer
from planner.jsonio.what_if import AdviceAnswer
from planner.programs import read_plan
from planner.runtime.measuring.measured import StepTime, compared
from planner.solving.scenarios import SCENARIOS
from planner.solving.targets import TARGETS
from planner.view.wording import advice_text
from tests.jsonio.requests import BASES, Request, answered, examples, patched, told
from tests.test_programs import IBATCH

PAGES = {"fsdp": 7, "overlap": 6, "bml": 6, "yan": 6, "json": 7}
"""The pages with an example, and how many scenarios of the regret mean anything there."""

FAMILIES = [name for name in PAGES if name != "json"]
CHAIN, ITERATION, CARAMEL = (BASES[name] for name in ("caramel", "iteration", "untargeted"))


def example(page: str) -> Request:
    request: Request = json.loads(examples(page)["If the numbers are others"][0])
    return request


def plain(page: str) -> Request:
    """Return the request without these fields; of graphs also without the usual scenarios."""
    request = told(example(page), "regret", "scenarios", "percentile")
    return {**request, "outlook": "nominal"} if page == "overlap" else request


def solved(request: Request, **more: Any) -> dict[str, Any]:
    return answered(request, planner.solve, **more)


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_the_page_is_answered(page: str) -> None:
    answer = solved(example(page))
    assert len(answer["regret"]) == PAGES[page] <= len(SCENARIOS)
    for row in answer["regret"]:
        assert row["lower_bound_ns"] <= row["best_ns"] <= row["plan_ns"]
        assert row["at_least"] == row["plan_ns"] / row["best_ns"]
        assert row["at_most"] == row["plan_ns"] / row["lower_bound_ns"]
        assert page == "json" or row["ddp_ns"] is row["layers_ns"] is None
    prospect = answer["prospect"]
    assert prospect["lower_bound_ns"] <= prospect["value_ns"] <= prospect["usual_value_ns"]
    assert prospect["gain"] == pytest.approx(prospect["usual_value_ns"] / prospect["value_ns"])
    assert 1 <= prospect["loss"] <= (1.01 if page == "overlap" else 1.005)
    assert answer["objective_ns"] == round(prospect["loss"] * prospect["usual_ns"])
    read, _ = decode_answer(json.dumps(answer))
    assert len(read.regret) == PAGES[page]
    # Both were tried by hand: another plan is within 0.5 % of the best, and better over all.
    assert prospect["gain"] > {"fsdp": 1.04, "overlap": 1.03}.get(page, 0)
    likely, usual = solved(told(example(page), "regret")), solved(plain(page))
    assert (likely["prospect"], "regret" in likely) == (prospect, False)
    assert prospect["usual_ns"] == usual["objective_ns"]
    assert not {"regret", "prospect"} & set(usual)


@pytest.mark.parametrize("name", ["caramel", "iteration", "ibatch"])
def test_regret_changes_nothing_else_in_an_answer(name: str) -> None:
    usual, asked = solved(BASES[name]), solved(BASES[name], regret=True)
    assert "regret" not in usual
    assert told(asked, "regret") == told(usual)
    assert len(asked["regret"]) == len(SCENARIOS)


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
    answer = planner.solve({**told(plain(page), "outlook"), **more})
    if (page, path) in {("fsdp", "scenarios[0].late"), ("overlap", "outlook")}:
        # There a rank may fall behind; graphs have scenarios of their own.
        assert answer["prospect"]["value_ns"] >= (answer["objective_ns"] if page == "fsdp" else 1)
        return
    assert (answer["error"]["code"], answer["error"]["path"]) == ("invalid_request", path)


@pytest.mark.parametrize("name", TARGETS)
def test_an_answer_says_what_it_was_made_for(name: str) -> None:
    answer = planner.solve({**CARAMEL, "target": name})
    assert (answer["method"], answer["barrier"]) == ("buckets", True)
    assert answer["target"]["name"] == name
    assert TARGETS[name].version in answer["target"]["version"]
    assert answer["targets"].keys() == TARGETS.keys()
    default = planner.solve({**CARAMEL, "target": name, "method": name})
    assert default["objective_ns"] == answer["targets"][name]["default_ns"]
    assert default["lower_bound_ns"] == answer["lower_bound_ns"] <= answer["objective_ns"]
    whole = planner.solve({**ITERATION, "target": name, "algorithms": ["ring", "ps"]})
    chosen = whole["synchronisation"]
    assert (chosen["algorithm"], chosen["mode"]) == ("ring", "replicated")
    for planned in (answer, whole):
        priced = planned["targets"][name]
        assert priced["plan_ns"] == planned["objective_ns"] <= priced["default_ns"]


BESIDE = {"startup_ns": 40, "ns_per_byte": 0.5, "slowdown": 1.25}
NETWORK = {"startup_ns": 100, "ns_per_byte": 2}
BATCHES = patched(IBATCH, {"transfer_ns": ..., "startup_ns": ..., "network": NETWORK})


@pytest.mark.parametrize(
    ("bare", "place", "changes"),
    [
        (ITERATION, "cluster", {}),
        (ITERATION, "cluster", {"modes": ["sharded"]}),
        (ITERATION, "cluster", {"method": "ddp"}),
        (BATCHES, "network", {}),
        (BATCHES, "network", {"direction": "push"}),
        (BATCHES, "network", {"direction": "push", "method": "layer_by_layer"}),
    ],
)
def test_answers_beside_contention_agree_with_themselves(
    bare: Request, place: str, changes: dict[str, Any]
) -> None:
    request = patched({**bare, **changes}, {f"{place}.interference": BESIDE})
    answer, alone = solved(request), solved(bare, **changes)
    text = json.dumps(answer).encode()
    assert decode_answer(text)[1].intervals
    assert alone["objective_ns"] <= answer["objective_ns"]
    assert answer["slowed_ns"] >= 0
    assert "slowed_ns" not in alone
    assert answer["lower_bound_ns"] >= alone["lower_bound_ns"] or changes
    steps = [StepTime(*(10**6 for _ in StepTime._fields))] * 2
    predicted = {time.name: time.predicted_ns for time in compared([read_plan(text)], steps)}
    assert answer["objective_ns"] in predicted.values()


WORTH = "worth running: 1.05 times as fast as DDP with bucket_cap_mb=5 (105 ns)"
LESS = "less than the 7.00% to ask for where sending takes so much from computation"
KEEP = "keep DDP: the plan gains"


@pytest.mark.parametrize(
    ("gain", "least", "at_most", "said"),
    [
        (1.05, 1.03, None, WORTH),
        (1.05, 1.07, None, f"{KEEP} 5.00% over DDP with bucket_cap_mb=5 (105 ns), less"),
        (1.03, 1.07, None, LESS),
        (1.02, 1.07, None, f"{KEEP} only 2.00% over"),
        (1.0, 1.03, None, f"{KEEP} nothing over"),
        (1.02, 1.03, 1.02, "(105 ns)\n"),
        (1.02, 1.03, 1.05, "(105 ns); none gains more than 5.00%\n"),
        (1.0, 1.03, 1.00001, "(105 ns); none gains as much as 0.01%\n"),
    ],
)
def test_advice_says_what_it_asks_for_and_what_any_plan_can_gain(
    gain: float, least: float, at_most: float | None, said: str
) -> None:
    about: dict[str, Any] = {"bucket_cap_mb": 5, "ddp_ns": 105, "contention": True}
    keep = gain < least
    advice = AdviceAnswer(keep_ddp=keep, gain=gain, at_most=at_most, least_gain=least, **about)
    assert said in f"{advice_text(advice)}\n"
