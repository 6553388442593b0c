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


@pytest.mark.parametrize("method", ["auto", "detour", "trees"])
@pytest.mark.parametrize("sizes", [{"gradient_bytes": 97}, {"layer_bytes": [120, 0, 240]}])
def test_what_is_listed_is_the_typed_listing_of_the_plan(
    method: str, sizes: dict[str, Any]
) -> None:
    nics = [[[0, 1], 0], [[1, 0], 1]]
    failed = {"servers": [[2, 2]], "nics": nics, "links": [], "switches": [[1, [0]]]}
    twice = {"servers": [[2, 2]] * 2, "nics": [nics[0], *nics], "links": [nics[1]]}
    request = (
        patched(CONTRACT, {"gradient_bytes": ...})
        | {"latency_ns": 7, "reduce_ns_per_byte": 0.25, "link_bytes_per_s": 0.3}
        | {"schedule": "all", "time_limit_s": 60, "note": "made up", "with_plan": True}
        | {"failed": {**failed, **twice}, "method": method, **sizes}
    )
    found = answered(request)
    assert found["failed"] == failed
    problem = problem_of(decode_request(json.dumps(request)))
    plan = decode_plan(json.dumps(found["plan"]))
    cost = evaluate(problem, plan)
    assert [tuple(row.values()) for row in found["steps"]] == [
        (step.stage, step.step, step.pieces) for step in cost.steps
    ]
    assert (found["rounds"], found["pieces_left_out"]) == (plan.rounds, len(plan.left_out))
    assert found["times_full_transfer"] == float(cost.load)
    digits = problem.bcube.digits
    entries = [one for server in range(9) for one in listed(problem, plan, server)]
    for row, entry in zip(found["transfers"], entries, strict=True):
        moved = entry.transfer
        ends = {"server": list(digits(moved.server)), "peer": list(digits(moved.peer))}
        known = {name: getattr(moved, name) for name in MOVED}
        known |= {"offset_bytes": entry.offset_bytes, "length_bytes": entry.length_bytes}
        layer = {"layer": entry.layer} if "layer_bytes" in sizes else {}
        part = {"part": entry.part} if plan.rounds > 1 else {}
        assert row == {**ends, **known, **layer, **part}


@pytest.mark.parametrize(
    ("method", "failed"),
    [("bml", {}), ("trees", NIC), ("detour", {"servers": [[1, 1]]})],
)
def test_schedules_of_one_of_all_of_nobody_and_of_more_than_are_listed(
    method: str, failed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = CONTRACT | {"gradient_bytes": 97, "method": method, "failed": failed}
    assert "transfers" not in ask(bare)
    servers = [list(one) for one in product(range(3), repeat=2)]
    servers = [one for one in servers if one not in failed.get("servers", ())]
    requests = [{**bare, "schedule": {"server": server}} for server in servers]
    parts = [ask(request)["transfers"] for request in requests]
    for server, rows in zip(servers, parts, strict=True):
        assert {tuple(row["server"]) for row in rows} == {tuple(server)}
    whole = [row for rows in parts for row in rows]
    everything = {**bare, "schedule": "all"}
    assert ask(everything)["transfers"] == whole
    for request, rows, hint in (
        (everything, whole, "; ask for one server"),
        (requests[-1], parts[-1], ""),
    ):
        monkeypatch.setattr("planner.jsonio.bml.MAX_TRANSFERS", len(rows))
        assert ask(request)["transfers"] == rows
        monkeypatch.setattr("planner.jsonio.bml.MAX_TRANSFERS", len(rows) - 1)
        message = f"expected at most {len(rows) - 1} transfers, got more{hint}"
        assert error(request) == ("schedule", message)


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


@pytest.mark.parametrize("change", [{}, {"n": 2, "k": 56}])
def test_what_is_drawn_of_an_answer(change: dict[str, Any]) -> None:
    found = ask(CONTRACT | change)
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
