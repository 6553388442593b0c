"""Profile files."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner import Profile, Provenance, caramel, iteration
from planner.jsonio import decode_profile, encode_profile
from planner.model.graphs import Graph, Op, Parameter
from planner.testing import graphs
from tests import schemas
from tests.jsonio.requests import BASES
from tests.strategies import profiles


@pytest.mark.slow
@given(profiles(), st.none() | graphs(), st.booleans(), st.lists(st.integers(0, 2), min_size=20))
def test_round_trip(drawn: Profile, graph: Graph | None, layers: bool, counts: list[int]) -> None:
    named = tuple(
        replace(layer, parameters=tuple(f"w ü{at}.{one}" for one in range(counts[at])))
        for at, layer in enumerate(drawn.layers)
    )
    profile = replace(drawn, graph=graph, layers=named if layers or not graph else ())
    text = encode_profile(profile)
    assert decode_profile(text) == profile
    assert decode_profile(text.encode("utf-8", "surrogatepass")) == profile
    schemas.validate(json.loads(text), "profile")


def test_one_op_and_one_parameter_a_line() -> None:
    graph = Graph(
        (Op("f", 3, "forward"), Op("F", 6, "backward", ("f",)), Op("E", 1, "backward", ("f",))),
        (Parameter("w", 7, ("F",), ("f",)), Parameter("v", 8, ("F", "E"), ("f",))),
    )
    text = encode_profile(Profile("m", (), Provenance("synthetic", "a test"), graph=graph))
    assert text.endswith(
        """,
 "ops": [
  {"name": "f", "ns": 3, "pass": "forward", "after": []},
  {"name": "F", "ns": 6, "pass": "backward", "after": ["f"]},
  {"name": "E", "ns": 1, "pass": "backward", "after": ["f"]}
 ],
 "parameters": [
  {"name": "w", "bytes": 7, "updated_by": "F", "read_by": "f"},
  {"name": "v", "bytes": 8, "updated_by": ["F", "E"], "read_by": "f"}
 ]
}
"""
    )


def test_plans_keep_to_a_fixed_order() -> None:
    graph = {name: BASES["forked"][name] for name in ("ops", "parameters")}
    cluster = planner.read_cluster("caramel-16")
    for fixed, order in ((False, ("short", "long", "f")), (True, ("long", "short", "f"))):
        document = {**BASES["graph"], **graph, "fixed_order": fixed}
        profile = decode_profile(json.dumps(document))
        assert decode_profile(encode_profile(profile)) == profile
        for problem in (
            caramel.Problem.from_profile(profile, cluster.nic),
            iteration.Problem.from_profile(profile, cluster).base,
        ):
            names = problem.graph.names_of((*problem.order.backward, *problem.order.forward))
            assert names == order
            assert problem.fixed_order == fixed
