"""Gradient synchronisation as JSON: the contract, options and limits, answers read again."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bml import METHODS, Problem, evaluate, ideal_ns, solve
from planner.collectives import COLLECTIVES, compare
from planner.draw import BarChart
from planner.draw.plans import plan_chart
from planner.errors import InvalidInputError
from planner.jsonio import decode_answer, decode_request, reply, schema
from planner.jsonio.bml import problem_of
from planner.jsonio.bml_answer import answer
from planner.network import Network
from planner.topologies import BCube
from planner.validation import MAX_TOTAL
from tests import schemas
from tests.jsonio.bml_execution import execute
from tests.jsonio.bml_requests import CONTRACT, CUT, NIC, changed
from tests.jsonio.test_caramel_answers import broken
from tests.jsonio.test_service import ask, without


def validate(document: dict[str, Any], part: str) -> None:
    schemas.validate(document, "bml", part)


def answered(**change: Any) -> dict[str, Any]:
    """Ask, and see that the request and the answer are what the schema says."""
    request = changed(**change)
    validate(request, "request")
    found = ask(request)
    validate(found, "answer")
    return found


def typed(request: dict[str, Any]) -> Problem:
    return problem_of(decode_request(json.dumps(request).encode()))


def read_again(document: dict[str, Any]) -> BarChart:
    read, content = decode_answer(json.dumps(document).encode())
    chart = plan_chart(read, content)
    assert isinstance(chart, BarChart)
    return chart


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
    for row in found["steps"]:
        assert 0 <= row["bytes"] - 12500000 * row["pieces"] / 18 < row["pieces"]
    assert round(found["times_full_transfer"], 4) == 0.8889
    best = found["comparison"]["bml_bcube"]
    assert (round(best["times_full_transfer"], 4), best["switches"]) == (0.8889, 6)
    assert {
        "bml_bcube",
        "ps_bcube",
        "ring_fattree",
        "ps_fattree",
        "hierarchical_fattree",
        "halving_doubling_fattree",
        "shuffle_fattree",
        "k_nics_fattree",
    } <= set(found["comparison"])
    assert not {"transfers", "failed", "reason", "binding", "cut_off"} & set(found)


def test_every_option_at_once() -> None:
    request = changed(
        gradient_bytes=360,
        layer_bytes=[120, 0, 240],
        element_bytes=4,
        link_bytes_per_s=0.3,
        latency_ns=7,
        reduce_ns_per_byte=0.25,
        schedule="all",
        failed={
            "servers": [[2, 2]],
            "nics": [[[0, 1], 0]],
            "links": [[[1, 0], 1]],
            "switches": [[1, [0]]],
        },
        method="detour",
        time_limit_s=60,
        note="made up",
    )
    validate(request, "request")
    found = ask(request)
    validate(found, "answer")
    assert found["method"] == "detour"
    assert found["failed"] == {"servers": 1, "nics": 2, "switches": 1}
    result = solve(typed(request), method="detour")
    assert (found["objective_ns"], found["lower_bound_ns"]) == (
        result.objective_ns,
        result.lower_bound_ns,
    )
    execute(request, found["transfers"])


@pytest.mark.parametrize(
    ("failed", "counts"),
    [
        ({"servers": [[0, 1], [0, 1]]}, (1, 0, 0)),
        ({"nics": [[[0, 1], 0], [[0, 1], 0]]}, (0, 1, 0)),
        ({"nics": [[[0, 1], 0]], "links": [[[0, 1], 0]]}, (0, 1, 0)),
        ({"links": [[[0, 1], 0], [[2, 2], 1]]}, (0, 2, 0)),
        ({"switches": [[0, [1]], [0, [2]], [0, [1]]]}, (0, 0, 2)),
        ({"servers": [[2, 0]], "nics": [[[0, 1], 1]], "switches": [[1, [2]]]}, (1, 1, 1)),
    ],
)
def test_failures_are_counted_once(failed: dict[str, Any], counts: tuple[int, ...]) -> None:
    found = answered(failed=failed, method="detour")
    assert tuple(found["failed"][name] for name in ("servers", "nics", "switches")) == counts
    assert found["objective_ns"] >= found["lower_bound_ns"]


def test_what_a_plan_says_of_itself() -> None:
    request = changed(failed={"servers": [[0, 1]]}, method="detour")
    found, problem = ask(request), typed(request)
    plan = solve(problem, method="detour").plan
    assert plan is not None
    cost = evaluate(problem, plan)
    assert found["pieces"] == 18
    assert found["pieces_left_out"] == len(plan.left_out) > 0
    assert found["rounds"] == plan.rounds
    assert found["times_full_transfer"] == float(cost.load)
    assert [tuple(row.values()) for row in found["steps"]] == [
        (one.stage, one.step, one.pieces, one.bytes) for one in cost.steps
    ]


def test_links_are_nics_and_order_does_not_matter() -> None:
    pairs = [[[0, 1], 0], [[2, 2], 1]]
    found = [
        ask(changed(failed=failed, method="detour", schedule="all", gradient_bytes=50))
        for failed in (
            {"nics": pairs},
            {"links": pairs[::-1]},
            {"nics": pairs[:1], "links": pairs[1:]},
        )
    ]
    assert len({json.dumps({**one, "runtime_s": 0}) for one in found}) == 1


def test_nothing_failed_if_nothing_is_named() -> None:
    names = ("servers", "nics", "links", "switches")
    empty: list[dict[str, Any]] = [{}, {name: [] for name in names}]
    for failed in empty:
        found = answered(failed=failed)
        assert "failed" not in found
        assert {**found, "runtime_s": 0} == {**ask(CONTRACT), "runtime_s": 0}


EVERYBODY = [list(server) for server in product(range(3), repeat=2)]


@pytest.mark.parametrize(
    ("failed", "reason", "binding", "cut_off"),
    [
        (
            CUT,
            "the failures cut off server [0, 1] from the other 8 that work",
            ["failed.nics"],
            [[0, 1]],
        ),
        (
            {"nics": [[[0, 1], 1]], "switches": [[0, [0]]], "servers": [[2, 2]]},
            "the failures cut off server [0, 1] from the other 7 that work",
            ["failed.servers", "failed.nics", "failed.switches"],
            [[0, 1]],
        ),
        (
            {"switches": [[1, [0]], [1, [1]], [1, [2]]], "servers": [[0, 0], [1, 1], [1, 2]]},
            "the failures cut off servers [0, 1], [0, 2], [1, 0] from the other 3 that work",
            ["failed.servers", "failed.switches"],
            [[0, 1], [0, 2], [1, 0]],
        ),
        ({"servers": EVERYBODY}, "every server has failed", ["failed.servers"], []),
    ],
)
@pytest.mark.parametrize("method", list(METHODS))
def test_infeasible_is_an_answer(
    failed: Any, reason: str, binding: list[str], cut_off: list[list[int]], method: str
) -> None:
    found = answered(failed=failed, method=method, schedule="all")
    assert (found["status"], found["method"]) == ("infeasible", method)
    assert found["objective_ns"] is found["lower_bound_ns"] is None
    assert found["binding"] == binding
    assert found["reason"] == reason
    assert found["cut_off"] == cut_off
    assert not {"steps", "pieces", "transfers", "comparison"} & set(found)
    with pytest.raises(InvalidInputError) as caught:
        read_again(found)
    assert caught.value.path == "steps"
    assert caught.value.message == f"the answer (infeasible) holds no plan: {found['reason']}"


def test_of_many_that_are_cut_off_a_thousand_are_named() -> None:
    found = answered(n=1500, k=1, failed={"switches": [[0, []]]})
    assert found["status"] == "infeasible"
    assert len(found["cut_off"]) == 1000
    assert "and 1491 more from the other 1 that work" in found["reason"]


@pytest.mark.parametrize("method", list(METHODS))
def test_the_method_that_made_the_plan_is_named(method: str) -> None:
    assert answered(method=method)["method"] == (method if method != "auto" else "bml")
    if method != "bml":
        one = answered(method=method, failed=NIC)
        assert one["method"] in ({"detour", "trees"} if method == "auto" else {method})


def test_auto_is_the_better_one() -> None:
    found = {
        name: answered(failed=NIC, method=name, latency_ns=40000)["objective_ns"]
        for name in ("auto", "detour", "trees")
    }
    assert found["auto"] == min(found["detour"], found["trees"])


def test_a_time_limit_may_cut_in_but_leaves_a_plan() -> None:
    request = changed(
        failed=NIC, method="trees", time_limit_s=1e-6, gradient_bytes=97, schedule="all"
    )
    validate(request, "request")
    found = ask_once(request)
    assert found["status"] in {"time_limit", "feasible", "optimal"}
    assert found["objective_ns"] >= found["lower_bound_ns"]
    execute(request, found["transfers"])


def test_the_time_limit_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(problem: Problem, *, method: str, time_limit: float | None) -> Any:
        seen.append((method, time_limit))
        return solve(problem, method=method)

    monkeypatch.setattr("planner.jsonio.bml.solve", spy)
    ask_once(changed(time_limit_s=2.5, method="detour"))
    ask_once(CONTRACT)
    assert seen == [("detour", 2.5), ("auto", None)]


def ask_once(request: dict[str, Any]) -> dict[str, Any]:
    """Ask without asking twice: what a time limit leaves may differ."""
    found: dict[str, Any] = json.loads(reply(json.dumps(request).encode()).data)
    validate(found, "answer")
    return found


def test_sizes_may_be_given_twice_if_they_agree() -> None:
    both = answered(gradient_bytes=60, layer_bytes=[20, 40])
    one = answered(gradient_bytes=without, layer_bytes=[20, 40])
    assert {**both, "runtime_s": 0} == {**one, "runtime_s": 0}


def test_rates_are_exact() -> None:
    """0.3 bytes a second, as written: no nanosecond more than 10 bytes take."""
    found = answered(n=2, k=1, gradient_bytes=2, link_bytes_per_s=0.3)
    assert found["objective_ns"] == -(-2 * 10**10 // 3)
    slow = answered(n=2, k=1, gradient_bytes=2, link_bytes_per_s=1e9, reduce_ns_per_byte=0.1)
    assert slow["objective_ns"] == 3  # 2 ns to send, 0.1 ns to add


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    n, k = draw(st.sampled_from([(2, 1), (3, 1), (2, 2), (3, 2), (2, 3)]))
    server = st.lists(st.integers(0, n - 1), min_size=k, max_size=k)
    level = st.integers(0, k - 1)
    digits = st.lists(st.integers(0, n - 1), min_size=k - 1, max_size=k - 1)
    element = draw(st.integers(1, 3))
    sizes = st.integers(0, 30).map(lambda size: size * element)
    request: dict[str, Any] = {"problem": "bml", "n": n, "k": k, "element_bytes": element}
    if draw(st.booleans()):
        request["layer_bytes"] = draw(st.lists(sizes, min_size=1, max_size=3))
    else:
        request["gradient_bytes"] = draw(sizes)
    request["link_bytes_per_s"] = draw(st.sampled_from([1, 1e9, 0.3, 1.25e9]))
    few = {"max_size": 2}
    optional = {
        "latency_ns": st.integers(0, 100),
        "reduce_ns_per_byte": st.sampled_from([0, 0.1, 3]),
        "schedule": st.one_of(
            st.sampled_from(["none", "all", "all"]), st.fixed_dictionaries({"server": server})
        ),
        "failed": st.fixed_dictionaries(
            {},
            optional={
                "servers": st.lists(server, **few),  # type: ignore[arg-type]
                "nics": st.lists(st.tuples(server, level).map(list), **few),  # type: ignore[arg-type]
                "links": st.lists(st.tuples(server, level).map(list), **few),  # type: ignore[arg-type]
                "switches": st.lists(st.tuples(level, digits).map(list), max_size=1),
            },
        ),
        "method": st.sampled_from(["auto", "bml", "detour", "detour", "detour"]),
        "note": st.text(max_size=3),
    }
    return {**request, **draw(st.fixed_dictionaries({}, optional=optional))}


@pytest.mark.slow
@settings(max_examples=40)
@given(requests())
def test_drawn_requests_are_answered_as_the_typed_interface_does(request_: dict[str, Any]) -> None:
    validate(request_, "request")
    found = ask(request_)
    if "error" in found:
        validate(found, "error")
        assert found["error"]["path"] in {"schedule.server", "method"}
        assert request_.get("method") in {"bml", "detour"} or "server" in request_["schedule"]
        assert "failed" in request_
        return
    validate(found, "answer")
    problem = typed(request_)
    result = solve(problem, method=request_.get("method", "auto"))
    assert (found["method"], found["status"]) == (result.method, result.status)
    assert found["objective_ns"] == result.objective_ns
    assert found["lower_bound_ns"] == result.lower_bound_ns
    assert found["ideal_ns"] == ideal_ns(problem)
    assert found["full_transfer_ns"] == problem.network.full_transfer_ns(problem.size_bytes)
    assert (found["servers"], found["switches"]) == (
        problem.bcube.servers,
        problem.bcube.switches,
    )
    if result.plan is None:
        return
    tensors = problem.layer_bytes if problem.size_bytes else None
    rows = {one.name: one for one in compare(problem.bcube, tensors=tensors or None)}
    assert set(found["comparison"]) == set(rows)
    for name, row in found["comparison"].items():
        one = rows[name]
        assert row == {
            "times_full_transfer": float(one.volume),
            "time_ns": one.time_ns(problem.network, problem.size_bytes),
            "steps": one.steps,
            "nics": one.nics,
            "switches": one.switches,
            "built_switches": one.built_switches,
        }
    if request_.get("schedule", "none") == "all":
        execute(request_, found["transfers"])
    groups = read_again(found).groups
    assert "this plan" in groups
    assert len(groups) == 1 + (1 if "failed" in found else len(rows))


def test_layers_bring_algorithms_that_place_whole_tensors() -> None:
    layers = answered(gradient_bytes=without, layer_bytes=[5, 1], k=1)["comparison"]
    assert set(layers) - set(answered(k=1)["comparison"]) == {
        "ps_tensors_fattree",
        "ps_tensors_greedy_fattree",
    }
    assert set(layers) <= set(COLLECTIVES)


def test_times_beyond_63_bits_are_null_and_not_drawn() -> None:
    found = answered(gradient_bytes=2**62, link_bytes_per_s=6e8)
    null = {name for name, row in found["comparison"].items() if row["time_ns"] is None}
    network = Network(6 * 10**8)  # type: ignore[arg-type]
    assert null == {
        one.name for one in compare(BCube(3, 2)) if network.time(one.volume * 2**62) > MAX_TOTAL
    }
    assert "halving_doubling_fattree" in null
    assert not null & set(read_again(found).groups)
    alone = answered(latency_ns=2**62, failed={"servers": EVERYBODY[1:]})
    assert (alone["objective_ns"], alone["ideal_ns"]) == (0, None)
    assert alone["status"] == "optimal"
    assert read_again(alone).groups == ("this plan",)


def test_huge_networks_are_answered_and_drawn() -> None:
    found = ask_once(changed(n=2, k=56))
    assert found["servers"] == 2**56
    assert found["comparison"]["bml_bcube"]["switches"] == found["switches"] == 56 * 2**55
    assert "this plan" in read_again(found).groups


def run_apart(requests: list[dict[str, Any]], seed: str) -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "planner", "solve", "--jsonl"],
        input="\n".join(map(json.dumps, requests)).encode(),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    for line in done.stdout.splitlines():
        yield {**json.loads(line), "runtime_s": 0}


@pytest.mark.slow
def test_the_same_request_has_the_same_answer_in_any_process() -> None:
    failed = {
        "servers": [[2, 2], [0, 0]],
        "nics": [[[0, 1], 0], [[1, 0], 1]],
        "switches": [[1, [1]]],
    }
    asked = [
        changed(schedule="all", gradient_bytes=360),
        *(
            changed(failed=failed, method=method, schedule="all", gradient_bytes=360)
            for method in ("auto", "detour", "trees")
        ),
        changed(failed={**CUT, "servers": [[2, 2], [1, 1]]}),
    ]
    here = [{**ask(one), "runtime_s": 0} for one in asked]
    for seed in ("1", "2"):
        assert list(run_apart(asked, seed)) == here


def test_what_is_drawn_of_an_answer() -> None:
    found = ask(CONTRACT)
    chart = read_again(found)
    assert set(chart.groups) == {"this plan", *found["comparison"]}
    assert chart.title.startswith("bml BCube(3, 2) · bml · 9 servers · ")
    assert chart.title.endswith(found["status"])
    panel = chart.panels[0]
    times = {
        name: length
        for one in panel.series
        for name, length in zip(chart.groups, one.values, strict=True)
        if length is not None
    }
    scale = found["objective_ns"] / times["this plan"]
    for name, row in found["comparison"].items():
        assert times[name] == pytest.approx(row["time_ns"] / scale)
    assert panel.bound == pytest.approx(found["lower_bound_ns"] / scale)
    lengths = [times[name] for name in chart.groups]
    assert lengths == sorted(lengths)


def test_around_failures_only_the_intact_network_stands_beside() -> None:
    found = ask(changed(failed={**NIC, "servers": [[2, 2]]}, method="detour"))
    chart = read_again(found)
    assert set(chart.groups) == {"this plan", "bml_bcube, nothing failed"}
    assert chart.title.startswith("bml BCube(3, 2) (failed servers: 1, NICs: 1) · detour · ")


SMALL = ask(changed(gradient_bytes=18))
ROUGH = ask(changed(gradient_bytes=7))
DAMAGED = ask(changed(gradient_bytes=18, failed=NIC, method="detour"))


@pytest.mark.parametrize(
    ("found", "steps", "value", "path"),
    [
        (ROUGH, ("lower_bound_ns",), ROUGH["objective_ns"] + 1, "lower_bound_ns"),
        (ROUGH, ("status",), "optimal", "status"),
        (ROUGH, ("lower_bound_ns",), ROUGH["objective_ns"], "status"),
        (ROUGH, ("lower_bound_ns",), -1, "lower_bound_ns"),
        (ROUGH, ("objective_ns",), None, "objective_ns"),
        (ROUGH, ("objective_ns",), 2**63, "objective_ns"),
        (ROUGH, ("comparison",), {}, "comparison.bml_bcube"),
        (DAMAGED, ("comparison",), {}, "comparison.bml_bcube"),
        (ROUGH, ("comparison", "bml_bcube", "nics"), 0, "comparison.bml_bcube.nics"),
        (ROUGH, ("comparison", "bml_bcube", "switches"), 10**400, "comparison.bml_bcube.switches"),
        (ROUGH, ("servers",), 10, "servers"),
        (ROUGH, ("switches",), 7, "switches"),
        (ROUGH, ("k",), 80, "k"),
        (ROUGH, ("n",), 1, "n"),
        (ROUGH, ("steps", 1, "stage"), "sum", "steps[1].stage"),
        (ROUGH, ("status",), "fine", "status"),
    ],
)
def test_answers_that_contradict_themselves(
    found: dict[str, Any], steps: tuple[Any, ...], value: Any, path: str
) -> None:
    read_again(found)
    with pytest.raises(InvalidInputError) as caught:
        read_again(broken(found, steps, value))
    assert caught.value.path == path


def test_an_answer_without_its_comparison() -> None:
    less = {key: value for key, value in SMALL.items() if key != "comparison"}
    with pytest.raises(InvalidInputError, match=r"^comparison: missing"):
        read_again(less)


def test_the_schema_lists_every_method_and_knows_what_is_needed() -> None:
    everything = schema("bml")
    for one in everything.values():
        schemas.check_schema(one)
    listed = everything["request"]["$defs"]["BmlRequest"]["properties"]
    assert listed["method"]["enum"] == list(METHODS)
    assert schemas.fits(CONTRACT, "bml", "request")
    bad: list[dict[str, Any]] = [
        {"gradient_bytes": without},
        {"n": 1},
        {"k": 0},
        {"link_bytes_per_s": 0},
        {"schedule": "some"},
        {"method": "ring"},
        {"failed": {"server": []}},
        {"failed": {"nics": [[[0, 0]]]}},
    ]
    for change in bad:
        assert not schemas.fits(changed(**change), "bml", "request")


def test_the_example_of_the_documentation_is_the_contracts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    section = page.split("## `bml`")[1]
    assert json.loads(section.split("```json\n")[1].split("```")[0]) == CONTRACT


def test_a_result_is_answered_without_a_request() -> None:
    problem = typed(CONTRACT)
    own = answer(problem, solve(problem), range(4, 5))
    found = ask(changed(schedule={"server": [1, 1]}))
    assert {**json.loads(msgspec.json.encode(own)), "runtime_s": 0} == {**found, "runtime_s": 0}


def test_a_gradient_of_nothing_takes_no_time() -> None:
    for sizes in ({"gradient_bytes": 0}, {"gradient_bytes": without, "layer_bytes": [0, 0]}):
        found = answered(**sizes, latency_ns=9, schedule="all")
        assert (found["objective_ns"], found["status"]) == (0, "optimal")
        assert found["transfers"] == []
        assert {row["time_ns"] for row in found["comparison"].values()} == {0}
        assert "this plan" in read_again(found).groups
