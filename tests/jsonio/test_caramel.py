"""Requests for gradient plans, whose ops come in any order that their needs allow."""

from typing import Any

from hypothesis import given, settings
from msgspec import to_builtins

import planner
from planner.jsonio.graphs import documents_of
from planner.model.graphs import Graph
from tests.caramel.graph_strategies import graphs
from tests.jsonio.requests import BASES, told

CONTRACT, CHAIN = BASES["one"], BASES["caramel"]


@settings(max_examples=30)
@given(graphs(max_parameters=3))
def test_an_answers_op_order_can_be_asked_for(graph: Graph) -> None:
    ops, parameters = map(to_builtins, documents_of(graph))
    request = {**CHAIN, "ops": ops, "parameters": parameters, "method": "caramel"}
    answer = planner.solve(request)
    again = planner.solve({**request, "op_order": answer["op_order"]})
    others: dict[str, Any] = {"order": (), "control_edges": (), "targets": {}}  # these enforce none
    assert {**told(again), **others} == {**told(answer), **others}
