"""Requests and answers about synchronisation: the contract, bad input, answers read again."""

import json
from typing import Any, get_args

import pytest

from planner.families.bigdl import METHODS, check_pulls
from planner.jsonio import decode_answer
from planner.jsonio.bigdl import MAX_NODES, PhaseName
from planner.model.errors import InvalidInputError
from planner.solving.views import Ranking
from tests import schemas
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


def changed(**change: Any) -> dict[str, Any]:
    return {key: value for key, value in {**CONTRACT, **change}.items() if value is not without}


def read_again(document: dict[str, Any]) -> Ranking:
    _, ranking = decode_answer(json.dumps(document).encode())
    assert isinstance(ranking, Ranking)
    return ranking


def test_the_contracts_example() -> None:
    found = ask(CONTRACT)
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
@pytest.mark.parametrize("nodes", [1, 7])
def test_answers_fit_their_schema_and_are_read_again(method: str, nodes: int) -> None:
    sizes = {"nodes": nodes, "elements": 29, "latency_ns": 7, "reduce_ns_per_byte": 0.1}
    found = ask(changed(**sizes, method=method))
    schemas.validate(found, "bigdl", "answer")
    assert ("levels" in found) == (method in DRIVERS)
    ranking = read_again(found)
    assert dict(ranking.times_ns)[found["method"]] == found["objective_ns"]
    assert {phase["name"] for phase in found["phases"]} <= set(get_args(PhaseName))
    starts = [phase["start_ns"] for phase in found["phases"]]
    assert starts == [0, *(phase["end_ns"] for phase in found["phases"][:-1])]
    if method not in DRIVERS:
        check_pulls(29, found["slices"], found["pull_order"], spread=method != "same_order")


def test_methods_that_do_not_fit_do_not_stand_in_the_way() -> None:
    """The time of `reduce` is no number of 63 bits here; nor are the bytes of a driver."""
    many = {"nodes": 4096, "partitions_per_node": 1024}
    slow = changed(**many, link_bytes_per_s=125_000, method="tree_aggregate")
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


def test_more_nodes_than_are_listed() -> None:
    assert ask(changed(nodes=MAX_NODES, method="reduce"))["levels"]


def test_an_answer_whose_plan_is_the_start_plan_can_be_read_again() -> None:
    request = changed(elements=10, nodes=5, partitions_per_node=2, link_bytes_per_s=3e6)
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
    schemas.validate(answer, "bigdl", "answer")
    assert (answer["status"], answer["comparison"]) == ("infeasible", {})
