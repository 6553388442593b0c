"""Requests and answers about whole iterations."""

import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from planner.families.bml.program import made, ranks_of
from planner.families.iteration.why import explain
from planner.jsonio import PROBLEMS, decode_answer, iteration_making
from planner.jsonio.iteration_answer import RunnerUp
from planner.model.errors import InvalidInputError
from planner.model.topologies import Failures
from planner.programs import GradientProgram, program_of
from planner.view.drawing import GANTT, plan_chart
from planner.view.wording import runner_up_text
from tests.cli.line import Line, write
from tests.jsonio.requests import ITERATION, answered
from tests.timelines import check_serial

REQUEST = ITERATION
PROFILE, CLUSTER = REQUEST["profile"], REQUEST["cluster"]


def asked(cluster: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return answered(REQUEST, cluster={**CLUSTER, **(cluster or {})}, **fields)


def test_a_runner_up_may_be_out_of_range_or_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*given: Any) -> Any:
        second = replace(explain(*given).runner_up, objective_ns=2**63 - 1)  # type: ignore[type-var]
        return replace(explain(*given), runner_up=second)

    def cut(*given: Any) -> Any:
        return replace(explain(*given), changes=(), timed_out=True)

    monkeypatch.setattr(iteration_making, "explain", slow)
    assert asked()["why"]["runner_up"] is None
    monkeypatch.setattr(iteration_making, "explain", cut)
    answer = asked()
    second = answer["why"]["runner_up"]
    assert (second["wins_if"], second["timed_out"]) == ([], True)
    text = runner_up_text(msgspec.convert(second, RunnerUp), answer["objective_ns"])
    assert text.endswith("time ran out before it was known what makes it win") or "equally" in text


@pytest.mark.parametrize(
    ("mode", "kinds"), [("replicated", {"all_reduce"}), ("sharded", {"push", "pull"})]
)
def test_algorithms_and_modes_can_be_chosen_and_every_transfer_is_drawn(
    mode: str, kinds: set[str]
) -> None:
    for algorithm in ("ring", "halving_doubling", "ps", "shuffle"):
        answer = asked(algorithms=[algorithm], modes=[mode])
        chosen = answer["synchronisation"]
        assert (chosen["algorithm"], chosen["mode"]) == (algorithm, mode)
        assert len(answer["alternatives"]) == 1
        found = [transfer["kind"] for transfer in answer["transfers"]]
        assert {*found} == kinds
        typed, timeline = decode_answer(json.dumps(answer).encode())
        check_serial(timeline)
        assert [window.label.split()[0].replace("-", "_") for window in timeline.windows] == found
        text = GANTT.text(plan_chart(typed, PROBLEMS["iteration"].view(typed), "tiny"), 100)
        assert "tiny: an iteration on four takes " in text


BCUBE: dict[str, Any] = {
    "machines": 9,
    "topology": {"kind": "bcube", "n": 3, "k": 2},
    "nic": {**CLUSTER["nic"], "per_machine": 2},
}
FAILED: dict[str, Any] = {"servers": [[0, 1]], "links": [[[2, 2], 0]], "switches": [[1, [0]]]}


def test_around_failures_an_answer_names_the_program_that_is_followed() -> None:
    whole = asked({**BCUBE, "failed": {}})
    assert "failed" not in whole["synchronisation"]["program"]
    answer = asked({**BCUBE, "failed": FAILED}, modes=["replicated"])
    assert answer["objective_ns"] >= whole["objective_ns"]
    assert (answer["machines"], answer["workers"]) == (9, 8)
    others = ("ring", "halving_doubling", "hierarchical", "ps", "shuffle")
    assert answer["left_out"] == dict.fromkeys(others, "server [0, 1] has failed")
    program = answer["synchronisation"]["program"]
    assert (program["generator"], program["shape"][:2]) == ("bml_replan", [3, 2])
    assert program["checked"] == "replay"
    assert program["failed"] == {**FAILED, "nics": FAILED["links"], "links": []}
    decode_answer(json.dumps(answer).encode())
    followed = program_of(json.dumps(answer).encode())
    assert isinstance(followed, GradientProgram)
    failed = Failures(frozenset({1}), frozenset({(8, 0)}), frozenset({(1, 0)}))
    for recipe in {batch.collective for batch in followed.batches}:
        assert recipe is not None
        assert recipe.failed == failed
        assert made(recipe).ranks == ranks_of(recipe) == 8
    for field, value, refused in (
        ("failed", {**program["failed"], "servers": [[0, 3]]}, r"failed.servers\[0\]\[1\]"),
        ("shape", [9], "shape"),
    ):
        program[field] = value
        with pytest.raises(InvalidInputError, match=refused):
            program_of(json.dumps(answer).encode())


@pytest.mark.slow
def test_failures_are_told_in_the_text(line: Line) -> None:
    write("nine.json", {**CLUSTER, **BCUBE, "failed": FAILED})
    said = line("plan model.json --cluster nine.json").out
    assert "8 workers, BCube(3,2) without 1 server and 1 NIC and 1 switch" in said
    assert "rank r is the r-th of the 8 servers that work" in said
    assert re.search(r"left out: [a-z_, ]*\bring\b[a-z_, ]* \(server \[0, 1\] has failed\)", said)
