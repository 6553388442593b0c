"""Targets in requests and answers."""

from typing import Any

import pytest

import planner
from planner.jsonio import schema
from planner.solving.targets import TARGETS
from tests.jsonio.test_iteration import REQUEST
from tests.test_programs import CARAMEL

DRAWN: dict[str, Any] = {**CARAMEL, "target": "ddp"}


@pytest.mark.parametrize("name", TARGETS)
def test_an_answer_says_what_it_was_made_for(name: str) -> None:
    answer = planner.solve({**CARAMEL, "target": name})
    assert answer["method"] == "buckets"
    assert answer["barrier"]
    assert answer["target"]["name"] == name
    assert TARGETS[name].version in answer["target"]["version"]
    assert answer["targets"].keys() == TARGETS.keys()
    assert answer["targets"][name]["plan_ns"] == answer["objective_ns"]
    default = planner.solve({**CARAMEL, "target": name, "method": name})
    assert default["objective_ns"] == answer["targets"][name]["default_ns"]
    assert default["lower_bound_ns"] == answer["lower_bound_ns"] <= answer["objective_ns"]


@pytest.mark.parametrize("name", TARGETS)
def test_whole_iterations(name: str) -> None:
    answer = planner.solve({**REQUEST, "target": name, "algorithms": ["ring", "ps"]})
    assert answer["synchronisation"]["algorithm"] == "ring"
    assert answer["synchronisation"]["mode"] == "replicated"
    priced = answer["targets"][name]
    assert priced["plan_ns"] == answer["objective_ns"] <= priced["default_ns"]


def test_planner_is_no_target() -> None:
    usual, same = planner.solve(CARAMEL), planner.solve({**CARAMEL, "target": "planner"})
    assert "target" not in same
    assert {**usual, "runtime_s": 0} == {**same, "runtime_s": 0}


@pytest.mark.parametrize(
    ("request_", "path", "message"),
    [
        ({**CARAMEL, "target": "dpp"}, "target", "did you mean 'ddp'"),
        ({**CARAMEL, "target": "fsdp2"}, "target", "shards parameters, which problem fsdp plans"),
        ({**REQUEST, "target": "fsdp2"}, "target", "shards parameters, which problem fsdp plans"),
        ({**REQUEST, "method": "fsdp"}, "method", "expected one of auto, joint"),
        ({**REQUEST, "method": "no_reshard"}, "method", "expected one of auto, joint"),
        ({**DRAWN, "method": "search"}, "method", "expected one of auto, buckets, ddp"),
        ({**DRAWN, "method": "nothing"}, "method", "expected one of auto, buckets, ddp"),
        ({**CARAMEL, "method": "buckets"}, "method", "expected one of auto, search"),
        ({**DRAWN, "scenarios": [{"startup": 2}]}, "scenarios", "not with target ddp"),
        ({**REQUEST, "target": "dpp"}, "target", "expected one of ddp"),
        ({**REQUEST, "target": "ddp", "epoch_samples": 64}, "epoch_samples", "not with target"),
        ({**REQUEST, "target": "ddp", "method": "joint"}, "method", "expected one of auto"),
        ({**REQUEST, "target": "ddp", "modes": ["sharded"]}, "modes", "are replicated"),
        ({**REQUEST, "target": "ddp", "algorithms": ["ps"]}, "algorithms", "told of ring only"),
    ],
)
def test_what_cannot_be_asked(request_: dict[str, Any], path: str, message: str) -> None:
    error = planner.solve(request_)["error"]
    assert error["path"] == path
    assert message in error["message"]


def test_times_beyond_63_bits_are_left_out() -> None:
    """A plan of chunks is short where whole messages take longer than can be said."""
    network = {
        "startup_ns": 0,
        "ns_per_byte": 4 * 10**18,
        "depths": {"2": {"startup_ns": 5, "ns_per_byte": 1}},
    }
    answer = planner.solve({**CARAMEL, "network": network})
    assert answer["objective_ns"] < 2**63
    assert "targets" not in answer
    refused = planner.solve({**CARAMEL, "network": network, "target": "ddp"})
    assert refused["error"]["path"] == "network"


@pytest.mark.parametrize(
    ("problem", "names"), [("iteration", TARGETS), ("caramel", TARGETS), ("ibatch", ("fsdp2",))]
)
def test_schemas_list_the_targets_that_a_problem_takes(problem: str, names: list[str]) -> None:
    request = schema(problem)["request"]["$defs"][f"{problem.title()}Request"]
    assert request["properties"]["target"]["enum"] == [*names, "planner"]
    assert ("fsdp2" in request["properties"]["method"]["enum"]) == (problem == "ibatch")
