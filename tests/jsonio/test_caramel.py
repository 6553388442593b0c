"""Requests for gradient plans and their answers: the contract, and that what they say adds up."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import to_builtins

import planner
from planner.families import caramel
from planner.jsonio import decode_answer, reply
from planner.jsonio.graphs import documents_of
from planner.model.graphs import Graph
from tests import schemas
from tests.caramel.graph_strategies import graphs
from tests.jsonio.test_service import ask, without

CONTRACT: dict[str, Any] = {
    "problem": "caramel",
    "ops": [
        {"name": "f1", "ns": 10, "pass": "forward", "after": []},
        {"name": "b1", "ns": 20, "pass": "backward", "after": ["f1"]},
    ],
    "parameters": [{"name": "w1", "bytes": 4096, "updated_by": "b1", "read_by": "f1"}],
    "network": {"startup_ns": 50000, "ns_per_byte": 0.8},
    "method": "caramel",
}
CHAIN: dict[str, Any] = {
    "problem": "caramel",
    "ops": [
        {"name": "f1", "ns": 10, "pass": "forward"},
        {"name": "f2", "ns": 20, "pass": "forward", "after": ["f1"]},
        {"name": "b2", "ns": 30, "pass": "backward", "after": ["f2"]},
        {"name": "b1", "ns": 20, "pass": "backward", "after": ["b2", "f1"]},
        {"name": "b0", "ns": 20, "pass": "backward", "after": ["b2"]},
    ],
    "parameters": [
        {"name": "w1", "bytes": 400, "updated_by": ["b1", "b0"], "read_by": ["f1"]},
        {"name": "w2", "bytes": 300, "updated_by": "b2", "read_by": ["f2", "f1"]},
        {"name": "w3", "bytes": 100, "updated_by": "b2", "read_by": "f2"},
    ],
    "network": {"startup_ns": 5, "ns_per_byte": 0.1},
}
TABLE = {"table": [[0, 5], [100, 20], [1000, 90]]}
DEPTHS = {**CHAIN["network"], "depths": {"2": {"startup_ns": 9, "ns_per_byte": 0.05}, "8": TABLE}}


def chain(**fields: Any) -> dict[str, Any]:
    """The request with some fields changed, or left out."""
    return {k: v for k, v in {**CHAIN, **fields}.items() if v is not without}


def test_the_contracts_example() -> None:
    answer = ask(CONTRACT)
    assert answer["problem"] == answer["method"] == "caramel"
    assert answer["order"] == ["w1"]
    assert answer["op_order"] == ["b1", "f1"]
    assert answer["control_edges"] == []
    assert answer["threshold_bytes"] == 93751  # 1.5·α/β, and one
    (group,) = answer["groups"]
    assert (group["parameters"], group["bytes"], group["depth"]) == (["w1"], 4096, 1)
    assert "part" not in group
    assert (group["ready_ns"], group["start_ns"], group["end_ns"]) == (20, 20, 53297)
    assert group["startup_end_ns"] == 50020
    assert group["due_ns"] == 20
    assert answer["iteration_ns"] == answer["objective_ns"] == answer["lower_bound_ns"] == 53307
    assert (answer["status"], answer["overlap"]) == ("optimal", 0)
    assert (answer["communication_ns"], answer["computation_ns"]) == (53277, 30)
    assert (answer["stall_ns"], answer["rho"]) == (53277, 53277 / 30)
    assert answer["utilisation"] == 30 / 53307
    assert answer["schedule"] == [
        {"op": "b1", "pass": "backward", "start_ns": 0, "end_ns": 20},
        {"op": "f1", "pass": "forward", "start_ns": 53297, "end_ns": 53307},
    ]
    assert "workers" not in answer
    assert answer["runtime_s"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("method", list(caramel.METHODS))
@pytest.mark.parametrize("network", [TABLE, DEPTHS], ids=["table", "depths"])
def test_every_option_at_once(method: str, network: dict[str, Any]) -> None:
    request = chain(
        method=method,
        network=network,
        op_order=["f1", "f2", "b2", "b0", "b1"],
        time_limit_s=1000,
        stages={"serialization": False, "batching": True},
        threshold_bytes=200,
        element_bytes=4,
        workers=4,
        servers=2,
        seed=7,
    )
    schemas.validate(request, "caramel", "request")
    answer = ask(request)
    schemas.validate(answer, "caramel", "answer")
    assert answer["op_order"] == request["op_order"]
    decoded, timeline = decode_answer(json.dumps(answer))
    assert timeline.end_ns == decoded.iteration_ns


@pytest.mark.parametrize(
    ("rate", "size", "expected"),
    [
        ("1e-1", 30, 3),
        ("3", 7, 21),
        (str(2**53 + 1), 1, 2**53 + 1),
        ("9007199254740993.0", 100, 900719925474099300),
        ("0.333333333333333333", 3 * 10**18, 10**18 - 1),
        ("0.3333333333333333331", 3 * 10**18, 10**18),
        ("0.1", 10**18, 10**17),
        ("1e-400", 10, 1),
        ("4611686018427387904.0", 1, 2**62),
    ],
)
def test_rates_are_exactly_the_decimals_written(rate: str, size: int, expected: int) -> None:
    request = json.dumps(
        {
            **CONTRACT,
            "parameters": [{**CONTRACT["parameters"][0], "bytes": size}],
            "network": {"startup_ns": 0, "ns_per_byte": "RATE"},
            "method": "layer_by_layer",
        }
    ).replace('"RATE"', rate)
    answer = json.loads(reply(request.encode()).data)
    if expected == 2**62:  # more than four times that does not fit, but the number is understood
        assert answer["error"]["path"] == "network"
        assert "four times" in answer["error"]["message"]
    else:
        assert answer["communication_ns"] == expected


def test_depths() -> None:
    answer = ask(chain(network=DEPTHS, method="exact"))
    assert {group["depth"] for group in answer["groups"]} <= {1, 2, 8}
    inside = {"depths": {**DEPTHS["depths"], "1": CHAIN["network"]}}
    both = {**DEPTHS, **inside}
    for network in (inside, both):
        other = ask(chain(network=network, method="exact"))
        assert {**other, "runtime_s": 0} == {**answer, "runtime_s": 0}
    base_table = {**TABLE, "depths": {"64": CHAIN["network"]}}
    assert ask(chain(network=base_table))["status"] == "optimal"


def test_every_size_can_be_small() -> None:
    network: dict[str, Any] = {"startup_ns": 5, "ns_per_byte": 0}
    assert ask(chain(network=network))["threshold_bytes"] is None
    network = {"startup_ns": 2**58, "ns_per_byte": 1e-300}
    for method in caramel.METHODS:
        assert ask(chain(network=network, method=method))["threshold_bytes"] is None
    assert ask(chain(network=network, threshold_bytes=7))["threshold_bytes"] == 7


@pytest.mark.slow
@pytest.mark.parametrize("method", list(caramel.METHODS))
def test_parameters_need_not_consist_of_whole_elements(method: str) -> None:
    for element_bytes in (7, 1000):
        answer = ask(chain(element_bytes=element_bytes, method=method))
        schemas.validate(answer, "caramel", "answer")


def test_stages_can_be_switched_off() -> None:
    def groups(**stages: bool) -> list[dict[str, Any]]:
        network = {"startup_ns": 5, "ns_per_byte": 0.01}
        request = chain(method="caramel", network=network, stages=stages)
        found: list[dict[str, Any]] = ask(request)["groups"]
        return found

    assert len(groups(batching=False)) == 3
    assert len(groups()) < 3
    late = groups(scheduling=False)
    assert all(group["due_ns"] == 70 for group in late)
    assert "workers" in ask(chain(method="caramel", stages={"serialization": False}))


def test_orders_are_enforced_or_drawn() -> None:
    answer = ask(chain(method="caramel"))
    assert answer["order"] == ["w2", "w3", "w1"]
    assert answer["op_order"][:3] in (["b2", "b1", "b0"], ["b2", "b0", "b1"])
    drawn = ask(chain(method="ddp", workers=3, seed=5))
    assert drawn["control_edges"] == []
    assert (drawn["workers"], drawn["seed"]) == (3, 5)
    alone = ask(chain(method="ddp", workers=1))
    assert alone["workers"] == 1
    given = ask(chain(method="ddp", op_order=["b2", "b0", "b1", "f1", "f2"]))
    assert "workers" not in given
    assert given["order"] == ["w2", "w3", "w1"]


def test_control_edges_name_ops() -> None:
    ops = [
        {"name": "f", "ns": 1, "pass": "forward"},
        {"name": "long", "ns": 9, "pass": "backward", "after": ["f"]},
        {"name": "short", "ns": 2, "pass": "backward", "after": ["f"]},
    ]
    parameters = [
        {"name": "w", "bytes": 5, "updated_by": "long", "read_by": "f"},
        {"name": "v", "bytes": 5, "updated_by": "short", "read_by": "f"},
    ]
    answer = ask(chain(ops=ops, parameters=parameters))
    assert answer["order"] == ["v", "w"]
    assert answer["control_edges"] == [["short", "long"]]
    free = [{**op, "ns": 0 if op["pass"] == "backward" else 1} for op in ops]
    for same in (ops, free):
        other = ask(chain(ops=same, parameters=parameters, op_order=["long", "short", "f"]))
        assert other["order"] == ["w", "v"]
        assert other["control_edges"] == [["long", "short"]]


def test_parts_say_which_bytes() -> None:
    parameter = {**CHAIN["parameters"][0], "bytes": 10_000_001}
    answer = ask(chain(parameters=[parameter], method="bytescheduler", element_bytes=4))
    parts = [group["part"]["w1"] for group in answer["groups"]]
    assert parts == [[0, 4_000_000], [4_000_000, 8_000_000], [8_000_000, 10_000_001]]


def test_nothing_to_compute_is_fine() -> None:
    ops = [{**op, "ns": 0} for op in CONTRACT["ops"]]
    for method in caramel.METHODS:
        answer = ask({**CONTRACT, "ops": ops, "method": method})
        assert answer["rho"] is None
        schemas.validate(answer, "caramel", "answer")
        decode_answer(json.dumps(answer).encode())
    free = {"startup_ns": 0, "ns_per_byte": 0}
    answer = ask({**CONTRACT, "ops": ops, "network": free})
    assert answer["iteration_ns"] == 0
    assert answer["utilisation"] == 1
    decode_answer(json.dumps(answer).encode())


@settings(max_examples=30)
@given(graphs(max_parameters=3))
def test_an_answers_op_order_can_be_asked_for(graph: Graph) -> None:
    ops, parameters = map(to_builtins, documents_of(graph))
    request = chain(ops=ops, parameters=parameters, method="caramel")
    answer = planner.solve(request)
    again = planner.solve({**request, "op_order": answer["op_order"]})
    others = {"runtime_s": 0, "order": (), "control_edges": (), "targets": {}}  # these enforce none
    assert {**again, **others} == {**answer, **others}


def test_answers_that_do_not_fit_are_refused() -> None:
    """Servers that are few multiply the traffic: it must not leave the range in silence."""
    network = {"startup_ns": 0, "ns_per_byte": 2**50}
    answer = ask(chain(network=network, method="ps", workers=64, servers=1))
    assert answer["error"]["path"] == "network"
    assert "63 bits" in answer["error"]["message"]


def test_answers_say_what_is_sent_and_whether_the_forward_pass_waits() -> None:
    told = {
        method: (answer["barrier"], answer["traffic"])
        for method in ("caramel", "exact", "bytescheduler", "ddp", "horovod", "mg_wfbp")
        for answer in [ask(chain(method=method))]
    }
    assert told == {
        **dict.fromkeys(("caramel", "exact", "bytescheduler"), (False, 1)),
        **dict.fromkeys(("ddp", "horovod", "mg_wfbp"), (True, 1)),
    }
    answer = ask(chain(method="ps", workers=4, servers=2))
    assert not answer["barrier"]
    assert answer["traffic"] == pytest.approx(4 * 4 / (2 * 3))
