"""Requests and answers about whole iterations, and about synchronisation on BCube alone."""

import json
import re
from dataclasses import replace
from itertools import product
from typing import Any

import msgspec
import pytest

from planner.families.bml import evaluate
from planner.families.bml.evaluation import listed
from planner.families.bml.program import made, ranks_of
from planner.families.collectives import compare
from planner.families.iteration.why import explain
from planner.jsonio import PROBLEMS, decode_answer, decode_plan, decode_request, iteration_making
from planner.jsonio.bml import problem_of
from planner.jsonio.iteration_answer import RunnerUp
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.model.topologies import BCube, Failures
from planner.model.units import format_ns
from planner.model.validation import MAX_TOTAL
from planner.programs import GradientProgram, program_of
from planner.view.chart import Chart
from planner.view.drawing import GANTT, plan_chart
from planner.view.panels import compared
from planner.view.wording import runner_up_text
from tests.cli.line import Line, write
from tests.jsonio.requests import BASES, ITERATION, NIC, answered, ask, error, patched
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


# ---
# Gradient synchronisation on BCube: schedules that others can execute, pictures.

SUMS = BASES["bml"]
ALONE = {"servers": [list(server) for server in product(range(3), repeat=2)][1:]}
MOVED = ("thread", "stage", "step", "level", "offset", "length")


def read_again(document: dict[str, Any]) -> Chart[Any]:
    read, content = decode_answer(json.dumps(document).encode())
    return plan_chart(read, content)


def drawn_names(document: dict[str, Any]) -> list[str]:
    times, _ = compared(read_again(document))[0]
    return [row.name for row in times.rows]


NICS = [[[0, 1], 0], [[1, 0], 1]]
DAMAGED = {"servers": [[2, 2]], "nics": NICS, "links": [], "switches": [[1, [0]]]}
TWICE = {**DAMAGED, "servers": [[2, 2]] * 2, "nics": [NICS[0], *NICS], "links": [NICS[1]]}
WHOLE = {"gradient_bytes": 97}
LAYERS = {"layer_bytes": [120, 0, 240]}


@pytest.mark.parametrize(
    ("method", "failed", "sizes"),
    [("bml", {}, WHOLE), ("detour", TWICE, LAYERS), ("trees", TWICE, WHOLE)],
)
def test_what_is_listed_is_the_typed_listing_of_the_plan_unless_it_is_too_much(
    method: str, failed: dict[str, Any], sizes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = (
        patched(SUMS, {"gradient_bytes": ...})
        | {"latency_ns": 7, "reduce_ns_per_byte": 0.25, "link_bytes_per_s": 0.3}
        | {"time_limit_s": 60, "note": "made up", "with_plan": True}
        | {"failed": failed, "method": method, **sizes}
    )
    everything, one = ({**request, "schedule": what} for what in ("all", {"server": [2, 1]}))
    found = answered(everything)
    assert found.get("failed") == (DAMAGED if failed else None)
    problem = problem_of(decode_request(json.dumps(everything)))
    plan = decode_plan(json.dumps(found["plan"]))
    cost = evaluate(problem, plan)
    assert [tuple(row.values()) for row in found["steps"]] == [
        (step.stage, step.step, step.pieces) for step in cost.steps
    ]
    assert (found["rounds"], found["pieces_left_out"]) == (plan.rounds, len(plan.left_out))
    assert found["times_full_transfer"] == float(cost.load)
    digits, whole = problem.bcube.digits, found["transfers"]
    entries = [row for server in range(9) for row in listed(problem, plan, server)]
    for row, entry in zip(whole, entries, strict=True):
        moved = entry.transfer
        ends = {"server": list(digits(moved.server)), "peer": list(digits(moved.peer))}
        known = {name: getattr(moved, name) for name in MOVED}
        known |= {"offset_bytes": entry.offset_bytes, "length_bytes": entry.length_bytes}
        layer = {"layer": entry.layer} if "layer_bytes" in sizes else {}
        part = {"part": entry.part} if plan.rounds > 1 else {}
        assert row == {**ends, **known, **layer, **part}

    assert "transfers" not in ask(request)
    mine = [row for row in whole if row["server"] == [2, 1]]
    for asked, rows, hint in ((everything, whole, "; ask for one server"), (one, mine, "")):
        monkeypatch.setattr("planner.jsonio.bml.MAX_TRANSFERS", len(rows))
        assert ask(asked)["transfers"] == rows
        monkeypatch.setattr("planner.jsonio.bml.MAX_TRANSFERS", len(rows) - 1)
        message = f"expected at most {len(rows) - 1} transfers, got more{hint}"
        assert error(asked) == ("schedule", message)


def test_times_beyond_63_bits_are_null_and_not_drawn() -> None:
    found = answered(SUMS, gradient_bytes=2**62, link_bytes_per_s=6e8)
    null = {name for name, row in found["comparison"].items() if row["time_ns"] is None}
    network = Network(6 * 10**8)  # type: ignore[arg-type]
    assert null == {
        one.name for one in compare(BCube(3, 2)) if network.time(one.volume * 2**62) > MAX_TOTAL
    }
    assert "halving_doubling_fattree" in null
    assert not null & {*drawn_names(found)}


def test_around_failures_only_the_intact_network_stands_beside() -> None:
    failed = {**NIC, "servers": [[2, 2]]}
    found = ask(SUMS | {"failed": failed, "method": "detour"})
    assert drawn_names(found) == ["bml_bcube, nothing failed", "this plan"]
    assert "BCube(3, 2) (failed servers: 1, NICs: 1) takes " in read_again(found).title
    alone = ask(SUMS | {"latency_ns": 2**62, "failed": ALONE})
    assert (drawn_names(alone), "takes 0 ns" in read_again(alone).title) == (["this plan"], True)


def test_what_is_drawn_of_an_answer() -> None:
    found = ask(SUMS)
    chart, names = read_again(found), drawn_names(found)
    network = f"{found['servers']:,} servers on BCube({found['n']}, {found['k']})"
    assert chart.title.startswith(f"A synchronisation of {network} takes ")
    assert format_ns(found["objective_ns"]) in chart.title
    panel, _ = compared(chart)[0]
    times = dict(zip(names, panel.values, strict=True))
    scale = found["objective_ns"] / times.pop("this plan")
    drawn = {name: row["time_ns"] for name, row in found["comparison"].items()}
    assert times == pytest.approx({name: time / scale for name, time in drawn.items() if time})
    assert panel.bound == pytest.approx(found["lower_bound_ns"] / scale)
    assert list(panel.values) == sorted(panel.values)
