"""Requests and answers about synchronisation: the contract, bad input, answers read again."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.bigdl import METHODS, Exchange, Problem, check_pulls, evaluate, solve
from planner.jsonio import decode_answer, decode_request, schema
from planner.jsonio.bigdl import MAX_LISTED, MAX_NODES, PhaseName, answer
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.solving.methods import REPLAN
from planner.solving.views import Ranking
from tests import schemas
from tests.jsonio.test_caramel_answers import broken
from tests.jsonio.test_service import ask, error, without

CONTRACT: dict[str, Any] = {
    "problem": "bigdl",
    "elements": 143000000,
    "element_bytes": 4,
    "nodes": 16,
    "partitions_per_node": 4,
    "link_bytes_per_s": 1.25e9,
}
DRIVERS = ("reduce", "tree_aggregate", "tree_aggregate_torrent")
REQUESTS = sorted((Path(__file__).parents[2] / "data" / "bigdl").glob("*.json"))


def changed(**change: Any) -> dict[str, Any]:
    return {key: value for key, value in {**CONTRACT, **change}.items() if value is not without}


def validate(document: dict[str, Any], part: str) -> None:
    schemas.validate(document, "bigdl", part)


def read_again(document: dict[str, Any]) -> Ranking:
    _, ranking = decode_answer(json.dumps(document).encode())
    assert isinstance(ranking, Ranking)
    return ranking


def test_the_contracts_example() -> None:
    validate(CONTRACT, "request")
    found = ask(CONTRACT)
    validate(found, "answer")
    assert (found["problem"], found["method"], found["status"]) == ("bigdl", "rotated", "optimal")
    assert found["objective_ns"] == found["lower_bound_ns"] == 858_000_000
    assert found["slices"][:2] == [[0, 8937500], [8937500, 17875000]]
    assert found["slices"][-1][1] == 143000000
    assert found["pull_order"][0] == list(range(16))
    assert found["pull_order"][3] == [*range(3, 16), 0, 1, 2]
    times = {name: one["times_full_transfer"] for name, one in found["comparison"].items()}
    assert times == {
        "rotated": 1.875,
        "same_order": 30,
        "reduce": 80,
        "tree_aggregate": 31,
        "tree_aggregate_torrent": 16.9375,
    }
    driver = found["comparison"]["reduce"]
    assert driver["driver_bytes"] == (64 + 16) * 572_000_000
    assert driver["driver_added_bytes"] == 63 * 572_000_000


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("nodes", [1, 2, 7, 40])
def test_answers_fit_their_schema_and_are_read_again(method: str, nodes: int) -> None:
    request = changed(
        nodes=nodes,
        elements=29,
        method=method,
        latency_ns=7,
        reduce_ns_per_byte=0.1,
        time_limit_s=9,
    )
    validate(request, "request")
    found = ask(request)
    validate(found, "answer")
    assert ("levels" in found) == (method in DRIVERS)
    ranking = read_again(found)
    assert dict(ranking.times_ns)[found["method"]] == found["objective_ns"]
    phases = found["phases"]
    assert [phase["start_ns"] for phase in phases] == [
        0,
        *(phase["end_ns"] for phase in phases[:-1]),
    ]
    assert phases[-1]["end_ns"] == found["objective_ns"]
    if method not in DRIVERS:
        check_pulls(29, found["slices"], found["pull_order"], spread=method != "same_order")


@settings(max_examples=50)
@given(
    st.integers(1, 10**6),
    st.integers(1, 9),
    st.integers(1, 30),
    st.integers(1, 9),
    st.sampled_from(list(METHODS)),
)
def test_json_and_the_typed_interface_agree(
    elements: int, size: int, nodes: int, each: int, method: str
) -> None:
    request = changed(
        elements=elements, element_bytes=size, nodes=nodes, partitions_per_node=each, method=method
    )
    found = ask(request)
    problem = Problem(
        elements=elements,
        element_bytes=size,
        nodes=nodes,
        partitions_per_node=each,
        network=Network(1_250_000_000),  # type: ignore[arg-type]
    )
    result = solve(problem, method=method)
    assert result.plan is not None
    cost = evaluate(problem, result.plan)
    assert (found["objective_ns"], found["status"]) == (result.objective_ns, result.status)
    assert found["lower_bound_ns"] == result.lower_bound_ns
    assert [phase["name"] for phase in found["phases"]] == [phase.name for phase in cost.phases]
    assert {phase.name for phase in cost.phases} <= set(get_args(PhaseName))
    for name, one in found["comparison"].items():
        assert one["time_ns"] == solve(problem, method=name).objective_ns


def test_methods_that_do_not_fit_do_not_stand_in_the_way() -> None:
    """The time of `reduce` is no number of 63 bits here; nor are the bytes of a driver."""
    slow = changed(
        nodes=4096, partitions_per_node=1024, link_bytes_per_s=125_000, method="tree_aggregate"
    )
    found = ask(slow)
    assert {"rotated", "tree_aggregate"} <= found["comparison"].keys()
    assert "reduce" not in found["comparison"]
    read_again(found)
    assert error({**slow, "method": "reduce"})[0] == "elements"
    alone = ask(changed(elements=2**62, element_bytes=1, nodes=1, partitions_per_node=1))
    assert set(alone["comparison"]) == {"rotated", "same_order"}
    read_again(alone)


def test_what_is_answered_is_read_again_at_the_ends_of_the_range() -> None:
    for change in (
        {"nodes": 2, "latency_ns": 2**61, "link_bytes_per_s": 2**62, "elements": 1},
        {"nodes": 3, "elements": 2**62, "element_bytes": 1, "link_bytes_per_s": 2**62},
        {"nodes": 1, "elements": 3, "reduce_ns_per_byte": 2**52},
        {"nodes": 4096, "elements": 1, "partitions_per_node": 2**20, "method": "reduce"},
    ):
        request = {"partitions_per_node": 2, **change}
        read_again(ask(changed(**request)))


def test_rates_are_exact() -> None:
    """0.3 bytes a second, as written: no nanosecond more than 10 bytes take."""
    request = changed(elements=3, element_bytes=1, nodes=2, link_bytes_per_s=0.3)
    assert ask(request)["objective_ns"] == -(-4 * 10**10 // 3)


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"elements": 1.5}, "elements", "expected an integer >= 1, got 1.5"),
        ({"elements": without}, "elements", "missing"),
        ({"elements": 2**62}, "elements", "must fit in 63 bits"),
        ({"nodes": 4097}, "nodes", "expected an integer <= 4096, got 4097"),
        ({"partitions_per_node": True}, "partitions_per_node", "got true"),
        ({"link_bytes_per_s": 0}, "link_bytes_per_s", "expected a number > 0, got 0"),
        ({"link_bytes_per_s": -1}, "link_bytes_per_s", "got -1"),
        ({"link_bytes_per_s": "fast"}, "link_bytes_per_s", "got 'fast'"),
        ({"link_bytes_per_s": 1e-6}, "elements", "the time of a synchronisation"),
        ({"link_bytes_per_s": 1e-6, "nodes": 1}, "elements", "the time of a full transfer"),
        ({"elements": 2**60, "link_bytes_per_s": 2**62}, "elements", "the bytes of a phase"),
        ({"latency_ns": -1}, "latency_ns", "expected an integer >= 0, got -1"),
        ({"reduce_ns_per_byte": -0.5}, "reduce_ns_per_byte", "got -0.5"),
        ({"method": "rotation"}, "method", "did you mean 'rotated'?"),
        ({"time_limit_s": 0}, "time_limit_s", "expected a number > 0, got 0"),
        ({"node": 3}, "node", "did you mean 'nodes'?"),
    ],
)
def test_bad_requests(change: dict[str, Any], path: str, expected: str) -> None:
    found = error(changed(**change))
    assert found[0] == path
    assert expected in found[1]


def test_more_nodes_than_are_listed() -> None:
    problem = Problem(
        elements=9,
        element_bytes=4,
        nodes=MAX_LISTED + 1,
        partitions_per_node=1,
        network=Network(1),  # type: ignore[arg-type]
    )
    with pytest.raises(InvalidInputError, match="expected at most 1024") as caught:
        answer(problem, solve(problem))
    assert caught.value.path == "nodes"
    assert error(changed(nodes=MAX_LISTED + 1))[0] == "nodes"
    assert ask(changed(nodes=MAX_NODES, method="reduce"))["levels"]


SMALL = ask(changed(nodes=3, elements=7))
DRIVEN = ask(changed(nodes=3, elements=7, method="reduce"))


@pytest.mark.parametrize(
    ("found", "steps", "value", "path"),
    [
        (SMALL, ("lower_bound_ns",), SMALL["objective_ns"] + 1, "lower_bound_ns"),
        (SMALL, ("status",), "optimal", "status"),
        (SMALL, ("status",), "infeasible", "status"),
        (SMALL, ("phases",), [], "phases"),
        (SMALL, ("phases", 1, "end_ns"), SMALL["objective_ns"], "phases[2].start_ns"),
        (SMALL, ("phases", 2, "end_ns"), 0, "phases[2].end_ns"),
        (SMALL, ("phases", 2, "end_ns"), SMALL["objective_ns"] + 1, "objective_ns"),
        (SMALL, ("phases", 0, "name"), "nothing", "phases[0].name"),
        (SMALL, ("comparison",), {}, "comparison.rotated"),
        (SMALL, ("comparison", "rotated", "time_ns"), 1, "comparison.rotated"),
        (SMALL, ("method",), "same", "comparison.same"),
        (SMALL, ("gradient_bytes",), 29, "gradient_bytes"),
        (DRIVEN, ("levels",), [], "levels"),
        (DRIVEN, ("levels", 0), 11, "levels"),
        (DRIVEN, ("levels",), [12, 12], "levels[1]"),
        (DRIVEN, ("nodes",), 4, "levels"),
        (SMALL, ("slices",), [[0, 7]], "slices"),
        (SMALL, ("slices", 1), [2, 5], "slices[1]"),
        (SMALL, ("elements",), 8, "gradient_bytes"),
        (SMALL, ("nodes",), 4, "slices"),
        (SMALL, ("pull_order",), [[0, 1, 2]], "pull_order"),
        (SMALL, ("pull_order", 1), [0, 1, 2], "pull_order[1][0]"),
        (SMALL, ("pull_order", 2), [2, 0, 0], "pull_order[2]"),
        (SMALL, ("pull_order", 2, 0), -1, "pull_order[2][0]"),
    ],
)
def test_answers_that_contradict_themselves(
    found: dict[str, Any], steps: tuple[Any, ...], value: Any, path: str
) -> None:
    read_again(found)
    with pytest.raises(InvalidInputError) as caught:
        read_again(broken(found, steps, value))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("found", "name", "path"),
    [
        (SMALL, "slices", "slices"),
        (SMALL, "pull_order", "pull_order"),
        (DRIVEN, "levels", "pull_order"),
        (SMALL, "phases", "phases"),
    ],
)
def test_answers_without_a_part(found: dict[str, Any], name: str, path: str) -> None:
    less = {key: value for key, value in found.items() if key != name}
    with pytest.raises(InvalidInputError) as caught:
        read_again(less)
    assert caught.value.path == path


def test_a_foreign_answer_may_leave_any_slice_empty() -> None:
    uneven = broken(SMALL, ("slices",), [[0, 0], [0, 5], [5, 7]])
    assert read_again(uneven).rows


def test_the_schema_lists_every_method() -> None:
    everything = schema("bigdl")
    for one in everything.values():
        schemas.check_schema(one)
    listed = everything["request"]["$defs"]["BigdlRequest"]["properties"]
    assert listed["method"]["enum"] == [*METHODS, REPLAN]
    answered = everything["answer"]["$defs"]["BigdlAnswer"]["properties"]
    assert "description" not in answered["levels"]["items"]  # sums are no bytes


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_shipped_requests_are_answered(path: Path) -> None:
    request = decode_request(path.read_bytes())
    assert Exchange(request.elements, request.nodes) == solve(request.to_problem()).plan


def test_an_answer_whose_plan_is_the_start_plan_can_be_read_again() -> None:
    request = {
        "problem": "bigdl",
        "elements": 10,
        "element_bytes": 4,
        "nodes": 5,
        "partitions_per_node": 2,
        "link_bytes_per_s": 3e6,
    }
    plan = ask({**request, "with_plan": True})["plan"]
    answer = ask({**request, "method": "reduce", "start_plan": plan})
    assert answer["method"] == "replan"
    assert decode_answer(json.dumps(answer).encode())
    with pytest.raises(InvalidInputError, match="comparison"):
        decode_answer(json.dumps({**answer, "method": "reduce"}).encode())


def test_no_method_may_be_left_to_compare_where_a_start_plan_does_not_fit() -> None:
    request = {**CONTRACT, "elements": 1, "partitions_per_node": 1, "latency_ns": 2**62}
    path, _ = error(request)
    assert path == "elements"
    plan = ask({**CONTRACT, "with_plan": True})["plan"]
    answer = ask({**request, "method": "replan", "start_plan": plan})
    validate(answer, "answer")
    assert (answer["status"], answer["comparison"]) == ("infeasible", {})
