"""Requests for gradient plans and their answers: the contract, and that what they say adds up."""

import json
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.families import caramel
from planner.jsonio import decode_answer, schema
from planner.jsonio.graphs import documents_of
from planner.model.graphs import Graph
from planner.solving.methods import REPLAN
from tests import schemas
from tests.caramel.graph_strategies import graphs, training_graphs
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


def changed(field: str, place: int, **fields: Any) -> dict[str, Any]:
    """The request with one op or parameter changed."""
    rows = [
        {k: v for k, v in {**row, **fields}.items() if v is not without} if i == place else row
        for i, row in enumerate(CHAIN[field])
    ]
    return chain(**{field: rows})


def request_of(graph: Graph, **fields: Any) -> dict[str, Any]:
    import msgspec

    ops, parameters = (msgspec.to_builtins(part) for part in documents_of(graph))
    return {**chain(ops=ops, parameters=parameters), **fields}


def validate(value: Any, kind: str) -> None:
    schemas.validate(value, "caramel", kind)


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
    assert answer["status"] == "optimal"
    assert answer["communication_ns"] == 53277
    assert answer["computation_ns"] == 30
    assert answer["stall_ns"] == 53277
    assert answer["rho"] == 53277 / 30
    assert answer["overlap"] == 0
    assert answer["utilisation"] == 30 / 53307
    assert answer["schedule"] == [
        {"op": "b1", "pass": "backward", "start_ns": 0, "end_ns": 20},
        {"op": "f1", "pass": "forward", "start_ns": 53297, "end_ns": 53307},
    ]
    assert "workers" not in answer
    assert answer["runtime_s"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("method", list(caramel.METHODS))
@pytest.mark.parametrize(
    "network", [CHAIN["network"], TABLE, DEPTHS], ids=["affine", "table", "depths"]
)
def test_requests_and_answers_fit_their_schemas(method: str, network: dict[str, Any]) -> None:
    small = chain(method=method, network=network)
    full = {
        **small,
        "op_order": ["f1", "f2", "b2", "b0", "b1"],
        "time_limit_s": 1000,
        "stages": {"serialization": False, "batching": True},
        "threshold_bytes": 200,
        "element_bytes": 4,
        "workers": 4,
        "servers": 2,
        "seed": 7,
    }
    for request in (small, full):
        validate(request, "request")
        answer = ask(request)
        validate(answer, "answer")
        assert answer["method"] == (method if method != "auto" else "search")
        decoded, timeline = decode_answer(json.dumps(answer).encode())
        assert timeline.end_ns == decoded.iteration_ns
    assert answer["op_order"] == full["op_order"]


def test_the_schema_lists_every_method() -> None:
    everything = schema("caramel")
    for one in everything.values():
        schemas.check_schema(one)
    listed = everything["request"]["$defs"]["CaramelRequest"]["properties"]["method"]["enum"]
    assert listed == [*caramel.METHODS, "buckets", "deepspeed", "megatron", REPLAN]


def test_the_method_is_auto_by_default() -> None:
    answer = ask(chain())
    assert answer["method"] == "search"
    assert answer["status"] == "optimal"


def test_depths() -> None:
    answer = ask(chain(network=DEPTHS, method="exact"))
    assert {group["depth"] for group in answer["groups"]} <= {1, 2, 8}
    inside = {"depths": {**DEPTHS["depths"], "1": CHAIN["network"]}}
    both = {**DEPTHS, **inside}
    for network in (inside, both):
        other = ask(chain(network=network, method="exact"))
        assert {**other, "runtime_s": 0} == {**answer, "runtime_s": 0}
        validate(chain(network=network), "request")
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
@pytest.mark.parametrize("element_bytes", [1, 4, 7, 64, 1000])
def test_parameters_need_not_consist_of_whole_elements(element_bytes: int) -> None:
    for method in caramel.METHODS:
        answer = ask(chain(element_bytes=element_bytes, method=method))
        validate(answer, "answer")


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
    other = ask(chain(ops=ops, parameters=parameters, op_order=["long", "short", "f"]))
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
        validate(answer, "answer")
        decode_answer(json.dumps(answer).encode())
    free = {"startup_ns": 0, "ns_per_byte": 0}
    answer = ask({**CONTRACT, "ops": ops, "network": free})
    assert answer["iteration_ns"] == 0
    assert answer["utilisation"] == 1
    decode_answer(json.dumps(answer).encode())


costs = st.fixed_dictionaries(
    {
        "startup_ns": st.integers(0, 30),
        "ns_per_byte": st.integers(0, 5) | st.sampled_from([0.1, 0.3, 1.7, 1e-9, 5e-324]),
    }
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    graphs(max_parameters=4) | training_graphs(max_blocks=2, max_branches=2),
    costs,
    st.sampled_from(["auto", "caramel", "exact", "ddp", "horovod", "bytescheduler", "ps"]),
    st.integers(0, 99),
)
def test_what_answers_say_adds_up(
    graph: Graph, network: dict[str, Any], method: str, seed: int
) -> None:
    request = request_of(graph, network=network, method=method, seed=seed, workers=3)
    if method in ("auto", "exact") and len(graph.parameters) > 3:
        request["method"] = "caramel"  # proofs take their time
    answer = ask(request)
    assert "error" not in answer, answer
    validate(answer, "answer")
    _, timeline = decode_answer(json.dumps(answer).encode())
    assert len(timeline.windows) == len(answer["groups"])
    check_adds_up(request, answer)


def check_adds_up(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Recompute from the request what the answer says."""
    span = {row["op"]: (row["start_ns"], row["end_ns"]) for row in answer["schedule"]}
    assert [row["op"] for row in answer["schedule"]] == answer["op_order"]
    assert sorted(span) == sorted(op["name"] for op in request["ops"])
    for op in request["ops"]:
        start, end = span[op["name"]]
        assert end - start == op["ns"]
        for needed in op.get("after", ()):
            before = next(one for one in request["ops"] if one["name"] == needed)
            if before["pass"] == op["pass"]:
                assert span[needed][1] <= start
    known = {parameter["name"]: parameter for parameter in request["parameters"]}

    def names(value: Any) -> list[str]:
        return [value] if isinstance(value, str) else list(value)

    rate = Fraction(repr(request["network"]["ns_per_byte"]))
    sent = dict.fromkeys(known, 0)
    free = 0
    for group in answer["groups"]:
        ready = max(
            span[op][1] for name in group["parameters"] for op in names(known[name]["updated_by"])
        )
        if "workers" in answer:
            assert group["ready_ns"] >= ready
        else:
            assert group["ready_ns"] == ready
        assert group["start_ns"] == max(free, group["ready_ns"])
        free = group["end_ns"]
        cost = request["network"]["startup_ns"] + ceil(rate * group["bytes"])
        if answer["method"] != "ps":
            assert free - group["start_ns"] == cost
        part = group.get("part", {})
        total = 0
        for name in group["parameters"]:
            first, stop = part.get(name, (0, known[name]["bytes"]))
            sent[name] += stop - first
            total += stop - first
            assert all(span[op][0] >= free for op in names(known[name]["read_by"]))
        assert total == group["bytes"]
    assert sent == {name: one["bytes"] for name, one in known.items()}
    assert sorted(answer["order"]) == sorted(known)
    assert answer["iteration_ns"] == max(end for _, end in span.values())
    assert answer["computation_ns"] == sum(op["ns"] for op in request["ops"])
    assert answer["stall_ns"] == answer["iteration_ns"] - answer["computation_ns"]
    assert answer["lower_bound_ns"] <= answer["objective_ns"] == answer["iteration_ns"]
    assert ("workers" in answer) == (answer["method"] not in ("search", "exact", "caramel"))


@settings(max_examples=30)
@given(graphs(max_parameters=3))
def test_an_answers_op_order_can_be_asked_for(graph: Graph) -> None:
    request = request_of(graph, method="caramel")
    answer = planner.solve(request)
    again = planner.solve({**request, "op_order": answer["op_order"]})
    others = {"runtime_s": 0, "order": (), "control_edges": (), "targets": {}}  # these enforce none
    assert {**again, **others} == {**answer, **others}
