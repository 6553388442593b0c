"""Gradient synchronisation as JSON: schedules that others can execute, pictures."""

import json
from itertools import product
from typing import Any

import pytest

from planner.families.bml import evaluate
from planner.families.bml.evaluation import listed
from planner.families.collectives import compare
from planner.jsonio import decode_answer, decode_plan, decode_request
from planner.jsonio.bml import problem_of
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.model.units import format_ns
from planner.model.validation import MAX_TOTAL
from planner.view.chart import Chart
from planner.view.drawing import plan_chart
from planner.view.panels import compared
from tests.jsonio.requests import BASES, NIC, answered, ask, error, patched

CONTRACT = BASES["bml"]
NO_CONTENTION = {"servers": [list(server) for server in product(range(3), repeat=2)][1:]}
MOVED = ("thread", "stage", "step", "level", "offset", "length")


def read_again(document: dict[str, Any]) -> Chart[Any]:
    read, content = decode_answer(json.dumps(document).encode())
    return plan_chart(read, content)


def drawn_names(document: dict[str, Any]) -> list[str]:
    times, _ = compared(read_again(document))[0]
    return [row.name for row in times.rows]


NICS = [[[0, 1], 0], [[1, 0], 1]]
FAILED = {"servers": [[2, 2]], "nics": NICS, "links": [], "switches": [[1, [0]]]}
TWICE = {**FAILED, "servers": [[2, 2]] * 2, "nics": [NICS[0], *NICS], "links": [NICS[1]]}
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
        patched(CONTRACT, {"gradient_bytes": ...})
        | {"latency_ns": 7, "reduce_ns_per_byte": 0.25, "link_bytes_per_s": 0.3}
        | {"time_limit_s": 60, "note": "made up", "with_plan": True}
        | {"failed": failed, "method": method, **sizes}
    )
    everything, one = ({**request, "schedule": what} for what in ("all", {"server": [2, 1]}))
    found = answered(everything)
    assert found.get("failed") == (FAILED if failed else None)
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
    found = answered(CONTRACT, gradient_bytes=2**62, link_bytes_per_s=6e8)
    null = {name for name, row in found["comparison"].items() if row["time_ns"] is None}
    network = Network(6 * 10**8)  # type: ignore[arg-type]
    assert null == {
        one.name for one in compare(BCube(3, 2)) if network.time(one.volume * 2**62) > MAX_TOTAL
    }
    assert "halving_doubling_fattree" in null
    assert not null & {*drawn_names(found)}


def test_around_failures_only_the_intact_network_stands_beside() -> None:
    failed = {**NIC, "servers": [[2, 2]]}
    found = ask(CONTRACT | {"failed": failed, "method": "detour"})
    assert drawn_names(found) == ["bml_bcube, nothing failed", "this plan"]
    assert "BCube(3, 2) (failed servers: 1, NICs: 1) takes " in read_again(found).title
    alone = ask(CONTRACT | {"latency_ns": 2**62, "failed": NO_CONTENTION})
    assert (drawn_names(alone), "takes 0 ns" in read_again(alone).title) == (["this plan"], True)


def test_what_is_drawn_of_an_answer() -> None:
    found = ask(CONTRACT)
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
