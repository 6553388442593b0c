"""Gradient synchronisation as JSON: the contract, schedules that others can execute, pictures."""

import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.families.bml import METHODS, evaluate
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
from tests.jsonio.test_service import ask, error, without

CONTRACT: dict[str, Any] = {
    "problem": "bml",
    "n": 3,
    "k": 2,
    "gradient_bytes": 12500000,
    "link_bytes_per_s": 5e9,
    "latency_ns": 0,
    "schedule": "none",
}
NIC = {"nics": [[[0, 1], 0]]}
MOVED = ("thread", "stage", "step", "level", "offset", "length")
EVERYBODY = [list(server) for server in product(range(3), repeat=2)]


def changed(**change: Any) -> dict[str, Any]:
    return {key: value for key, value in {**CONTRACT, **change}.items() if value is not without}


def answered(**change: Any) -> dict[str, Any]:
    """Ask, and see that the request and the answer are what the schema says."""
    request = changed(**change)
    schemas.validate(request, "bml", "request")
    found = ask(request)
    schemas.validate(found, "bml", "answer")
    return found


def read_again(document: dict[str, Any]) -> Chart[Any]:
    read, content = decode_answer(json.dumps(document).encode())
    return plan_chart(read, content)


def drawn_names(document: dict[str, Any]) -> list[str]:
    """Return the names of the bars of an answer that is read again, in their order."""
    times, _ = compared(read_again(document))[0]
    return [row.name for row in times.rows]


def test_the_contracts_example() -> None:
    found = answered()
    assert (found["problem"], found["method"]) == ("bml", "bml")
    assert (found["n"], found["k"], found["servers"], found["switches"]) == (3, 2, 9, 6)
    assert (found["pieces"], found["pieces_left_out"], found["rounds"]) == (18, 0, 1)
    assert found["full_transfer_ns"] == 2_500_000
    assert found["ideal_ns"] == found["lower_bound_ns"] == -(-8 * 2_500_000 // 9)
    # 18 pieces of whole bytes: each of four steps waits for at most six bytes too much.
    assert 0 <= found["objective_ns"] - found["ideal_ns"] <= 4 * 6
    assert found["status"] == (
        "optimal" if found["objective_ns"] == found["lower_bound_ns"] else "feasible"
    )
    assert [(row["stage"], row["step"], row["pieces"]) for row in found["steps"]] == [
        ("aggregate", 0, 6),
        ("aggregate", 1, 2),
        ("broadcast", 0, 2),
        ("broadcast", 1, 6),
    ]
    assert round(found["times_full_transfer"], 4) == 0.8889
    best = found["comparison"]["bml_bcube"]
    assert (round(best["times_full_transfer"], 4), best["switches"]) == (0.8889, 6)
    trees = ("ring", "ps", "hierarchical", "halving_doubling", "shuffle", "k_nics")
    assert {"bml_bcube", "ps_bcube", *(f"{name}_fattree" for name in trees)} <= set(
        found["comparison"]
    )
    assert not {"transfers", "failed", "reason", "binding"} & set(found)


@pytest.mark.parametrize("method", ["auto", "detour", "trees"])
@pytest.mark.parametrize("sizes", [{"gradient_bytes": 97}, {"layer_bytes": [120, 0, 240]}])
def test_what_is_listed_is_the_typed_listing_of_the_plan(
    method: str, sizes: dict[str, Any]
) -> None:
    servers = {"servers": [[2, 2], [2, 2]], "links": [[[1, 0], 1]], "switches": [[1, [0]]]}
    failed = {**servers, "nics": [[[0, 1], 0], [[0, 1], 0], [[1, 0], 1]]}
    options: dict[str, Any] = {"latency_ns": 7, "reduce_ns_per_byte": 0.25}
    options |= {"link_bytes_per_s": 0.3}
    options |= {"schedule": "all", "time_limit_s": 60, "note": "made up", "with_plan": True}
    asked = {"gradient_bytes": without, **sizes, **options, "failed": failed, "method": method}
    found = answered(**asked)
    nics = [[[0, 1], 0], [[1, 0], 1]]
    once = {"servers": [[2, 2]], "nics": nics, "links": [], "switches": [[1, [0]]]}
    assert found["failed"] == once
    problem = problem_of(decode_request(json.dumps(changed(**asked))))
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
    ("failed", "reason", "binding"),
    [
        (
            {"nics": [[[0, 1], 1]], "switches": [[0, [0]]], "servers": [[2, 2]]},
            "the failures cut off server [0, 1] from the other 7 that work",
            ["failed.servers", "failed.nics", "failed.switches"],
        ),
        (
            {"switches": [[1, [0]], [1, [1]], [1, [2]]], "servers": [[0, 0], [1, 1], [1, 2]]},
            "the failures cut off servers [0, 1], [0, 2], [1, 0] from the other 3 that work",
            ["failed.servers", "failed.switches"],
        ),
        ({"servers": EVERYBODY}, "every server has failed", ["failed.servers"]),
    ],
)
@pytest.mark.parametrize("method", list(METHODS))
def test_infeasible_is_an_answer(failed: Any, reason: str, binding: list[str], method: str) -> None:
    found = answered(failed=failed, method=method, schedule="all")
    assert (found["status"], found["method"]) == ("infeasible", method)
    assert (found["reason"], found["binding"]) == (reason, binding)
    assert not {"steps", "pieces", "transfers", "comparison"} & set(found)


@pytest.mark.parametrize("method", list(METHODS))
def test_the_method_that_made_the_plan_is_named(method: str) -> None:
    assert answered(method=method)["method"] == (method if method != "auto" else "bml")
    if method != "bml":
        one = answered(method=method, failed=NIC)
        assert one["method"] in ({"detour", "trees"} if method == "auto" else {method})


def test_rates_are_exact() -> None:
    """0.3 bytes a second, as written: no nanosecond more than 10 bytes take."""
    found = answered(n=2, k=1, gradient_bytes=2, link_bytes_per_s=0.3)
    assert found["objective_ns"] == -(-2 * 10**10 // 3)
    slow = answered(n=2, k=1, gradient_bytes=2, link_bytes_per_s=1e9, reduce_ns_per_byte=0.1)
    assert slow["objective_ns"] == 3  # 2 ns to send, 0.1 ns to add


def test_layers_bring_the_algorithm_that_places_whole_tensors() -> None:
    layers = answered(gradient_bytes=without, layer_bytes=[5, 1], k=1)["comparison"]
    assert set(layers) - set(answered(k=1)["comparison"]) == {"ps_tensors_fattree"}
    assert set(layers) <= set(COLLECTIVES)


def test_the_example_of_the_documentation_is_the_contracts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    section = page.split("## `bml`")[1]
    assert json.loads(section.split("```json\n")[1].split("```")[0]) == CONTRACT


def test_a_gradient_of_nothing_takes_no_time() -> None:
    for sizes in ({"gradient_bytes": 0}, {"gradient_bytes": without, "layer_bytes": [0, 0]}):
        found = answered(**sizes, latency_ns=9, schedule="all")
        assert (found["objective_ns"], found["status"]) == (0, "optimal")
        assert found["transfers"] == []
        assert {row["time_ns"] for row in found["comparison"].values()} == {0}
        assert "this plan" in [row.name for row in read_again(found).view]


def test_a_request_without_a_plan_in_its_time_says_so() -> None:
    """So much damage to look at takes seconds."""
    failed = {"servers": [[0] * 15 + [1]]}
    answer = planner.solve(changed(n=2, k=16, failed=failed, time_limit_s=0.001))
    assert answer["status"] == "time_limit"
    if answer["objective_ns"] is None:
        assert answer["binding"] == ["time_limit_s"]
        assert "time limit" in answer["reason"]
        assert "transfers" not in answer
    schemas.validate(answer, "bml", "answer")


def test_a_gradient_without_bytes_has_no_transfers_however_many_servers_there_are() -> None:
    request = changed(n=2**62, k=1, gradient_bytes=0, schedule="all")
    begin = time.process_time()
    assert planner.solve(request)["transfers"] == []
    assert time.process_time() - begin < 5


# ---
# Schedules: who knows nothing else can execute them.


def test_schedules_of_one_of_all_and_of_nobody() -> None:
    request = changed(gradient_bytes=97, failed={"servers": [[1, 1]]}, method="detour")
    assert "transfers" not in ask(request)
    whole = ask({**request, "schedule": "all"})["transfers"]
    parts = []
    for server in product(range(3), repeat=2):
        if server != (1, 1):
            rows = ask({**request, "schedule": {"server": list(server)}})["transfers"]
            assert {tuple(row["server"]) for row in rows} == {server}
            parts += rows
    assert parts == whole


def test_the_fields_of_a_transfer() -> None:
    """Step 0 of thread 0 of the server [2, 1]: to digit 0 = 2 and 0 what they own."""
    found = answered(gradient_bytes=180, schedule={"server": [2, 1]})
    rows = [
        row
        for row in found["transfers"]
        if (row["thread"], row["stage"], row["step"]) == (0, "aggregate", 0)
    ]
    common = {"server": [2, 1], "thread": 0, "stage": "aggregate", "step": 0, "level": 0}
    common |= {"length": 3, "length_bytes": 30}
    assert rows == [
        {**common, "peer": [2, 2], "offset": 6, "offset_bytes": 60},
        {**common, "peer": [2, 0], "offset": 0, "offset_bytes": 0},
    ]
    assert len(found["transfers"]) == 2 * 2 * 2 * (3 - 1)


@pytest.mark.parametrize("method", ["bml", "trees"])
def test_more_transfers_than_are_listed(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = without if method == "bml" else NIC
    request = changed(gradient_bytes=97, failed=failed, method=method, schedule="all")
    one = {**request, "schedule": {"server": [2, 2]}}
    everything, own = (len(ask(asked)["transfers"]) for asked in (request, one))
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


# ---
# Answers that are drawn.


def test_times_beyond_63_bits_are_null_and_not_drawn() -> None:
    found = answered(gradient_bytes=2**62, link_bytes_per_s=6e8)
    null = {name for name, row in found["comparison"].items() if row["time_ns"] is None}
    network = Network(6 * 10**8)  # type: ignore[arg-type]
    assert null == {
        one.name for one in compare(BCube(3, 2)) if network.time(one.volume * 2**62) > MAX_TOTAL
    }
    assert "halving_doubling_fattree" in null
    assert not null & set(drawn_names(found))
    alone = answered(latency_ns=2**62, failed={"servers": EVERYBODY[1:]})
    assert (alone["objective_ns"], alone["ideal_ns"]) == (0, None)
    assert alone["status"] == "optimal"
    assert drawn_names(alone) == ["this plan"]


def test_huge_networks_are_answered_and_drawn() -> None:
    found = ask(changed(n=2, k=56))
    assert found["servers"] == 2**56
    assert found["comparison"]["bml_bcube"]["switches"] == found["switches"] == 56 * 2**55
    assert "this plan" in drawn_names(found)


def test_what_is_drawn_of_an_answer() -> None:
    found = ask(CONTRACT)
    chart = read_again(found)
    names = drawn_names(found)
    assert set(names) == {"this plan", *found["comparison"]}
    assert chart.title.startswith("A synchronisation of 9 servers on BCube(3, 2) takes ")
    assert format_ns(found["objective_ns"]) in chart.title
    panel, _ = compared(chart)[0]
    times = dict(zip(names, panel.values, strict=True))
    scale = found["objective_ns"] / times["this plan"]
    for name, row in found["comparison"].items():
        assert times[name] == pytest.approx(row["time_ns"] / scale)
    assert panel.bound == pytest.approx(found["lower_bound_ns"] / scale)
    assert list(panel.values) == sorted(panel.values)


def test_around_failures_only_the_intact_network_stands_beside() -> None:
    found = ask(changed(failed={**NIC, "servers": [[2, 2]]}, method="detour"))
    assert set(drawn_names(found)) == {"this plan", "bml_bcube, nothing failed"}
    assert "BCube(3, 2) (failed servers: 1, NICs: 1) takes " in read_again(found).title
