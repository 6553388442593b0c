"""Gradient synchronisation as JSON: the contract, options and limits, answers read again."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planner.families.bml import METHODS, Problem, evaluate, solve
from planner.families.bml.family import BML
from planner.families.collectives import COLLECTIVES
from planner.jsonio import decode_answer, decode_request, reply, schema
from planner.jsonio.bml import answer, problem_of
from planner.model.errors import InvalidInputError
from planner.solving.methods import REPLAN
from planner.view.chart import Chart
from planner.view.drawing import plan_chart
from planner.view.panels import compared
from tests import schemas
from tests.jsonio.bml_execution import execute
from tests.jsonio.bml_requests import CONTRACT, CUT, NIC, changed
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
    assert not {"transfers", "failed", "reason", "binding"} & set(found)


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
    nics = [[[0, 1], 0], [[1, 0], 1]]
    assert found["failed"] == {
        "servers": [[2, 2]],
        "nics": nics,
        "links": [],
        "switches": [[1, [0]]],
    }
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
    told = tuple(len(found["failed"][name]) for name in ("servers", "nics", "switches"))
    assert told == counts
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
        (step.stage, step.step, step.pieces) for step in cost.steps
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
    ("failed", "reason", "binding"),
    [
        (
            CUT,
            "the failures cut off server [0, 1] from the other 8 that work",
            ["failed.nics"],
        ),
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
    assert found["objective_ns"] is found["lower_bound_ns"] is None
    assert found["binding"] == binding
    assert found["reason"] == reason
    assert not {"steps", "pieces", "transfers", "comparison"} & set(found)
    with pytest.raises(InvalidInputError) as caught:
        read_again(found)
    assert caught.value.path == "steps"
    assert caught.value.message == f"the answer (infeasible) holds no plan: {found['reason']}"


def test_of_many_that_are_cut_off_some_are_named() -> None:
    found = answered(n=1500, k=1, failed={"switches": [[0, []]]})
    assert found["status"] == "infeasible"
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

    def spy(problem: Problem, *, method: str, time_limit: float | None, **_: Any) -> Any:
        seen.append((method, time_limit))
        return solve(problem, method=method)

    monkeypatch.setattr(BML, "solve", spy)
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


def test_layers_bring_the_algorithm_that_places_whole_tensors() -> None:
    layers = answered(gradient_bytes=without, layer_bytes=[5, 1], k=1)["comparison"]
    assert set(layers) - set(answered(k=1)["comparison"]) == {"ps_tensors_fattree"}
    assert set(layers) <= set(COLLECTIVES)


def test_the_schema_lists_every_method_and_knows_what_is_needed() -> None:
    everything = schema("bml")
    for one in everything.values():
        schemas.check_schema(one)
    listed = everything["request"]["$defs"]["BmlRequest"]["properties"]
    assert listed["method"]["enum"] == [*METHODS, REPLAN]
    assert schemas.fits(CONTRACT, "bml", "request")
    bad: list[dict[str, Any]] = [
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
        assert "this plan" in [row.name for row in read_again(found).view]
