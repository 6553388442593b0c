"""Requests and answers about whole iterations."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planner.cli import main
from planner.families.bml.program import made, ranks_of
from planner.families.iteration.why import explain
from planner.jsonio import PROBLEMS, decode_answer, iteration_making
from planner.jsonio.iteration_answer import RunnerUp
from planner.model.errors import InvalidInputError
from planner.model.topologies import Failures
from planner.programs import GradientProgram, program_of
from planner.view.drawing import GANTT, plan_chart
from planner.view.wording import runner_up_text
from tests.jsonio.requests import ITERATION, answered
from tests.timelines import check_serial

REQUEST = ITERATION
PROFILE, CLUSTER = REQUEST["profile"], REQUEST["cluster"]
PARAMETERS, ACTIVATIONS = 12800, 3000  # bytes of all layers


def asked(cluster: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return answered(REQUEST, cluster={**CLUSTER, **(cluster or {})}, **fields)


def test_the_alternatives_and_the_parts_of_the_time() -> None:
    answer = asked()
    assert answer["network_bound_ns"] <= answer["lower_bound_ns"] <= answer["objective_ns"]
    for field in ("objective_ns", "lower_bound_ns"):
        assert answer[field] == min(other[field] for other in answer["alternatives"])
    assert set(answer["left_out"]) == {"hierarchical", "bml", "mixed"}
    why = answer["why"]
    assert why["computation_ns"] == answer["computation_ns"] == 3600
    parts = why["computation_ns"] + why["exposed_bytes_ns"] + why["exposed_startup_ns"]
    assert parts == answer["iteration_ns"] == answer["schedule"][-1]["end_ns"]
    assert answer["stall_ns"] == answer["iteration_ns"] - 3600
    assert why["runner_up"]["objective_ns"] >= answer["objective_ns"]
    spent = sum(transfer["end_ns"] - transfer["start_ns"] for transfer in answer["transfers"])
    assert spent == answer["communication_ns"]


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


def test_memory_is_counted_and_binds() -> None:
    replicated: dict[str, Any] = {"optimiser_ratio": 2, "modes": ["replicated"]}
    answer = asked({"memory_bytes": 10**6}, **replicated)
    largest = max(transfer["bytes"] for transfer in answer["transfers"])
    needed = (2 + 2) * PARAMETERS + ACTIVATIONS
    assert answer["memory"] == {"needed_bytes": needed + largest, "available_bytes": 10**6}
    tight: dict[str, Any] = {"memory_bytes": needed}
    answer = asked(tight, **replicated)
    assert (answer["status"], answer["binding"]) == ("infeasible", ["memory_bytes"])
    assert all(
        other["objective_ns"] is None and other["reason"] for other in answer["alternatives"]
    )
    assert "reason" not in asked(tight, ignore_memory=True, **replicated)
    roomy = asked(tight, optimiser_ratio=2, activation_bytes=ACTIVATIONS - 400)
    assert roomy["memory"]["needed_bytes"] <= needed


def test_the_number_of_machines_is_chosen() -> None:
    answer = asked(epoch_samples=60)
    planned = {row["epoch_ns"]: row["machines"] for row in answer["sizing"]["candidates"]}
    assert answer["sizing"]["at_most"] == 4
    assert answer["machines"] == planned[min(epoch for epoch in planned if epoch)]
    assert answer["objective_ns"] == asked({"machines": answer["machines"]})["objective_ns"]


def test_engines_that_schedule_get_a_group_size() -> None:
    scheduling = {"task_ns": 100, "tasks_per_machine": 2}
    answer = asked({"scheduling": scheduling}, max_overhead=0.1)
    iteration_ns, found = answer["objective_ns"], answer["scheduling"]
    # o = 100 · 8 / g, and o / (iteration + o) is at most a tenth
    size = found["group_size"]
    assert iteration_ns * (size - 1) < 9 * 800 <= iteration_ns * size
    assert found["iteration_ns"] == iteration_ns + -(-800 // size)
    refused = asked({"scheduling": scheduling}, max_overhead=0.001, max_group_ns=1)["scheduling"]
    assert refused["group_size"] is None
    assert refused["binding"]


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
def test_failures_are_told_in_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, cluster = tmp_path / "tiny.json", tmp_path / "nine.json"
    model.write_text(json.dumps(PROFILE))
    cluster.write_text(json.dumps({**CLUSTER, **BCUBE, "failed": FAILED}))
    assert main(["plan", str(model), "--cluster", str(cluster)]) == 0
    said = capsys.readouterr().out
    assert "8 workers, BCube(3,2) without 1 server and 1 NIC and 1 switch" in said
    assert "rank r is the r-th of the 8 servers that work" in said
    assert re.search(r"left out: [a-z_, ]*\bring\b[a-z_, ]* \(server \[0, 1\] has failed\)", said)
