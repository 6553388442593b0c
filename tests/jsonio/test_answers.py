"""What answers and errors say: the contract's examples, options, the ends of the ranges.

`answers.json` holds what the answer says at some places: "-" stands for nothing, "*" for anything,
and "~" begins a part of a text. `"method": "each"` asks every method of the family. Each answer
fits its schema and is read again.

`refused.json`, and of files `refused_files.json`, hold requests that mean nothing, though each
field by itself could: the path of the error and a part of its message. What families have alike,
and what a schema says of single fields: `test_every_problem`.
"""

import json
import re
import time
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import to_builtins

import planner
from planner.jsonio import PROBLEMS, decode_answer, decode_profile, decode_request, reply
from planner.jsonio.clusters import ClusterDocument, cluster_of
from planner.jsonio.decoding import typed
from planner.jsonio.graphs import documents_of
from planner.jsonio.what_if import answer_request
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph
from planner.solving.timeline import Timeline
from planner.view.chart import Chart
from planner.view.drawing import DRAWINGS
from tests import schemas
from tests.caramel.graph_strategies import graphs
from tests.formats.refused import refused
from tests.jsonio.requests import (
    BASES,
    HERE,
    ROOT,
    STAGES,
    Request,
    answered,
    ask,
    ask_both,
    error,
    patched,
    steps_of,
    table,
    told,
)

MANY = 2**62


def asked() -> Iterator[tuple[Request, dict[str, Any]]]:
    for request, (found,) in table(HERE / "answers.json"):
        methods = PROBLEMS[request["problem"]].family.methods
        for method in methods if request.get("method") == "each" else [None]:
            named = {"method": method} if method else {}
            yield request | named, found | (named if "method" in found else {})


def check_place(answer: Any, place: str, value: Any) -> None:
    """Assert that an answer says something at a place, or, if it is "-", that it says nothing."""
    try:
        said = reduce(getitem, steps_of(place), answer)
    except LookupError:
        assert value == "-", place
        return
    if isinstance(value, str) and value.startswith("~"):
        assert value[1:] in said
    else:
        assert value == "*" or said == (pytest.approx(value) if type(value) is float else value)


@pytest.mark.parametrize(("request_", "found"), list(asked()), ids=str)
def test_an_answer_says(request_: Request, found: dict[str, Any]) -> None:
    answer = answered(request_, ask_both)
    for place, value in found.items():
        check_place(answer, place, value)
    if answer["objective_ns"] is not None:
        _, content = decode_answer(json.dumps(answer))
        assert not isinstance(content, Timeline) or content.end_ns == answer["objective_ns"]
        return
    assert answer["status"] == "infeasible"
    assert answer["reason"]
    assert answer["binding"]
    with pytest.raises(InvalidInputError, match=r"the answer \(infeasible\) holds no plan"):
        decode_answer(json.dumps(answer))
    problem = request_["problem"]
    typed_answer = answer_request(PROBLEMS[problem], decode_request(json.dumps(request_)))
    about = ", ".join(dict.fromkeys((problem, answer["method"])))
    assert typed_answer.headline() == f"There is no plan ({about}: infeasible)"


COST = {"startup_ns": 5, "ns_per_byte": 0.1}
DEPTHS = {"2": {"startup_ns": 9, "ns_per_byte": 0.05}, "8": {"table": [[0, 5], [1000, 90]]}}
EXACT = {"method": "exact", "network": {**COST, "depths": DEPTHS}}
SAME: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("caramel", EXACT, {**EXACT, "network": {"depths": {**DEPTHS, "1": COST}}}),
    ("caramel", EXACT, {**EXACT, "network": {**COST, "depths": {**DEPTHS, "1": COST}}}),
    ("drizzle", {"tasks": ..., "stages": STAGES[::-1]}, {"tasks": 320, "stages": STAGES}),
    (
        *("small", {}),
        {"constants.bits_per_activation": ..., "constants.bits_per_weight": ...},  # they are 32
    ),
    ("untargeted", {}, {"target": "planner"}),
]


@pytest.mark.parametrize(("base", "change", "other"), SAME, ids=str)
def test_requests_that_say_the_same_have_the_same_answer(
    base: str, change: dict[str, Any], other: dict[str, Any]
) -> None:
    assert told(ask(patched(BASES[base], change))) == told(ask(patched(BASES[base], other)))


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
        ("4611686018427387904.0", 1, MANY),
    ],
)
def test_rates_are_exactly_the_decimals_written(rate: str, size: int, expected: int) -> None:
    cost = {"startup_ns": 0, "ns_per_byte": 0}
    change = {"parameters[0].bytes": size, "network": cost, "method": "layer_by_layer"}
    text = json.dumps(patched(BASES["one"], change))
    text = text.replace('"ns_per_byte": 0', f'"ns_per_byte": {rate}')
    answer = json.loads(reply(text.encode()).data)
    if expected == MANY:
        assert "four times" in answer["error"]["message"]
    else:
        assert answer["communication_ns"] == expected


def test_an_answer_whose_plan_is_the_start_plan_can_be_read_again() -> None:
    sizes = {"elements": 10, "nodes": 5, "partitions_per_node": 2, "link_bytes_per_s": 3e6}
    request = {**BASES["bigdl"], **sizes}
    plan = ask({**request, "with_plan": True})["plan"]
    answer = ask({**request, "method": "reduce", "start_plan": plan})
    assert answer["method"] == "replan"
    assert decode_answer(json.dumps(answer))
    with pytest.raises(InvalidInputError, match="comparison"):
        decode_answer(json.dumps({**answer, "method": "reduce"}))


def test_no_method_may_be_left_to_compare_where_a_start_plan_does_not_fit() -> None:
    plan = ask({**BASES["bigdl"], "with_plan": True})["plan"]
    large = {"elements": 1, "partitions_per_node": 1, "latency_ns": MANY}
    answer = answered({**BASES["bigdl"], **large}, method="replan", start_plan=plan)
    assert (answer["status"], answer["comparison"]) == ("infeasible", {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "limit", "echo"),
    [
        ({"compute_ns": 10, "task_ns": 1}, "0." + "9" * 26, 1),
        ({"compute_ns": 10, "task_ns": 0}, "1e-400", 0),
        ({"compute_ns": 0, "task_ns": 0}, "1e-400", 0),
    ],
)
def test_limits_that_are_rounded_to_an_end_are_read_again(
    change: dict[str, Any], limit: str, echo: int, tmp_path: Path
) -> None:
    """As a float the limit would already be 0 or 1 in the request."""
    text = json.dumps({**BASES["drizzle"], **change, "max_overhead": 0.5}).replace("0.5", limit)
    answer, content = decode_answer(reply(text.encode()).data)
    assert answer.max_overhead == content.max_overhead == echo
    chart = Chart("limits", content)
    assert "█ chosen" in DRAWINGS["drizzle"].text(chart, 80)
    DRAWINGS["drizzle"].save(chart, tmp_path / "p.svg")


def test_the_example_of_the_page_on_drizzle() -> None:
    text = (ROOT / "docs" / "drizzle.md").read_text(encoding="utf-8")
    request, shown = map(json.loads, re.findall(r"```json\n(.*?)```", text, re.DOTALL))
    assert request == json.loads((ROOT / "data/drizzle/inception64.json").read_bytes())
    assert told(ask(request), "curve") == shown


@settings(max_examples=30)
@given(graphs(max_parameters=3))
def test_an_answers_op_order_can_be_asked_for(graph: Graph) -> None:
    ops, parameters = map(to_builtins, documents_of(graph))
    request = {**BASES["caramel"], "ops": ops, "parameters": parameters, "method": "caramel"}
    answer = planner.solve(request)
    again = planner.solve({**request, "op_order": answer["op_order"]})
    others: dict[str, Any] = {"order": (), "control_edges": (), "targets": {}}  # these enforce none
    assert {**told(again), **others} == {**told(answer), **others}


# ---
# Errors


@pytest.mark.parametrize(("request_", "expected"), list(table(HERE / "refused.json")), ids=str)
def test_what_fields_say_together(request_: Request, expected: list[str]) -> None:
    path, message = error(request_)
    assert path == expected[0]
    assert expected[1] in message


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2, "k": 24, "gradient_bytes": 3, "schedule": "all"},
        {"n": 2**20, "k": 2, "schedule": {"server": [0, 0]}},
        {"n": 2, "k": 40, "schedule": "all", "gradient_bytes": ..., "layer_bytes": [0] * 9 + [3]},
    ],
)
def test_too_many_transfers_are_refused_before_there_is_a_plan(change: dict[str, Any]) -> None:
    begin = time.process_time()
    path, message = error(patched(BASES["bml"], change))
    assert time.process_time() - begin < 1
    assert (path, "at most 1000000 transfers" in message) == ("schedule", True)


SHAPES = ("n", "k", "ports", "accelerators", "link_bytes_per_s")
CLUSTERS = [BASES[name] for name in ("switch", "bcube", "fattree", "rails")]
OTHER_SHAPES = [
    (patched(one, {place: ... if name in one["topology"] else 4}), [place, ""])
    for one in CLUSTERS
    for name in SHAPES
    for place in [f"topology.{name}"]
]


@pytest.mark.parametrize(
    ("document", "expected"), [*table(HERE / "refused_files.json"), *OTHER_SHAPES], ids=str
)
def test_what_fields_of_a_file_say_together(document: Request, expected: list[str]) -> None:
    """No schema can check it."""
    path, message = expected
    if "machines" not in document:
        with refused(path, re.escape(message)):
            decode_profile(json.dumps(document))
        return
    assert schemas.fits(document, "cluster")
    for within in ("", "cluster"):
        with refused(".".join(filter(None, (within, path))), ""):
            cluster_of(typed(document, ClusterDocument), within)
