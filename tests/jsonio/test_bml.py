"""Gradient synchronisation as JSON: schedules that others can execute, pictures."""

import json
from itertools import product
from typing import Any

import pytest

import planner
from planner.families.bml import evaluate
from planner.families.bml.evaluation import listed
from planner.families.collectives import COLLECTIVES, compare
from planner.jsonio import decode_answer, decode_plan, decode_request
from planner.jsonio.bml import problem_of
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.model.units import format_ns
from planner.model.validation import MAX_TOTAL
from planner.view.chart import Chart
from planner.view.drawing import plan_chart
from planner.view.panels import compared
from tests import schemas
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


def test_layers_bring_the_algorithm_that_places_whole_tensors() -> None:
    request = patched(CONTRACT, {"gradient_bytes": ..., "layer_bytes": [5, 1], "k": 1})
    layers = answered(request)["comparison"]
    assert layers.keys() - answered(CONTRACT, k=1)["comparison"] == {"ps_tensors_fattree"}
    assert layers.keys() <= {*COLLECTIVES}


@pytest.mark.parametrize(
    "sizes", [{"gradient_bytes": 0}, {"gradient_bytes": ..., "layer_bytes": [0, 0]}]
)
def test_a_gradient_of_nothing_takes_no_time(sizes: dict[str, Any]) -> None:
    found = answered(patched(CONTRACT, {**sizes, "latency_ns": 9, "schedule": "all"}))
    assert (found["objective_ns"], found["status"], found["transfers"]) == (0, "optimal", [])
    assert {row["time_ns"] for row in found["comparison"].values()} == {0}
    assert "this plan" in drawn_names(found)


def test_a_request_without_a_plan_in_its_time_says_so() -> None:
    """So much damage to look at takes seconds."""
    failed = {"servers": [[0] * 15 + [1]]}
    answer = planner.solve(CONTRACT | {"n": 2, "k": 16, "failed": failed, "time_limit_s": 0.001})
    assert answer["status"] == "time_limit"
    if answer["objective_ns"] is None:
        assert answer["binding"] == ["time_limit_s"]
        assert "time limit" in answer["reason"]
        assert "transfers" not in answer
    schemas.validate(answer, "bml", "answer")


def test_the_fields_of_a_transfer() -> None:
    """Step 0 of thread 0 of the server [2, 1]: to digit 0 = 2 and 0 what they own."""
    rows = answered(CONTRACT, gradient_bytes=180, schedule={"server": [2, 1]})["transfers"]
    common = {"server": [2, 1], "thread": 0, "stage": "aggregate", "step": 0, "level": 0}
    assert [row for row in rows if common.items() <= row.items()] == [
        {**common, "length": 3, "length_bytes": 30, **ends}
        for ends in (
            {"peer": [2, 2], "offset": 6, "offset_bytes": 60},
            {"peer": [2, 0], "offset": 0, "offset_bytes": 0},
        )
    ]
    assert len(rows) == 2 * 2 * 2 * (3 - 1)


@pytest.mark.parametrize(
    ("method", "failed"),
    [("bml", {}), ("trees", NIC), ("detour", {"servers": [[1, 1]]})],
)
def test_schedules_of_one_of_all_of_nobody_and_of_more_than_are_listed(
    method: str, failed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = CONTRACT | {"gradient_bytes": 97, "method": method, "failed": failed}
    assert "transfers" not in ask(bare)
    request, one = {**bare, "schedule": "all"}, {**bare, "schedule": {"server": [2, 2]}}
    whole, parts = ask(request)["transfers"], []
    for server in map(list, product(range(3), repeat=2)):
        if server not in failed.get("servers", ()):
            rows = ask({**bare, "schedule": {"server": server}})["transfers"]
            assert {tuple(row["server"]) for row in rows} == {tuple(server)}
            parts += rows
    assert parts == whole
    everything, own = len(whole), len(rows)  # those of the last server
    assert everything > own > 1
    for most, all_, some in (
        (everything, True, True),
        (everything - 1, False, True),
        (own, False, True),
        (own - 1, False, False),
    ):
        monkeypatch.setattr("planner.jsonio.bml.MAX_TRANSFERS", most)
        for asked, fits, hint in ((request, all_, "; ask for one server"), (one, some, "")):
            if fits:
                assert len(ask(asked)["transfers"]) <= most
            else:
                message = f"expected at most {most} transfers, got more{hint}"
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


@pytest.mark.parametrize(
    ("change", "names", "title"),
    [
        ({"latency_ns": 2**62, "failed": NO_CONTENTION}, {"this plan"}, "takes 0 ns"),
        (
            {"failed": {**NIC, "servers": [[2, 2]]}, "method": "detour"},
            {"this plan", "bml_bcube, nothing failed"},
            "BCube(3, 2) (failed servers: 1, NICs: 1) takes ",
        ),
    ],
)
def test_around_failures_only_the_intact_network_stands_beside(
    change: dict[str, Any], names: set[str], title: str
) -> None:
    found = ask(CONTRACT | change)
    assert {*drawn_names(found)} == names
    assert title in read_again(found).title


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
