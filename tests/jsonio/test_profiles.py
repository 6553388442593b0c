"""Profile files."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner import InvalidInputError, Profile, Provenance
from planner.jsonio import decode_profile, encode_profile
from planner.model.graphs import Graph, Op, Parameter
from tests import schemas
from tests.strategies import profiles

LAYER = {"name": "a", "forward_ns": 1, "backward_ns": 2, "parameter_bytes": 3}
MINIMAL = {
    "name": "m",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "layers": [LAYER],
}


OPS = [
    {"name": "f", "ns": 3, "pass": "forward", "after": []},
    {"name": "F", "ns": 6, "pass": "backward", "after": ["f"]},
]
PARAMETER = {"name": "w", "bytes": 7, "updated_by": "F", "read_by": ["f"]}
WITH_GRAPH = {
    "name": "m",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "ops": OPS,
    "parameters": [PARAMETER],
}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 4))
    some = st.sets(st.integers(0, count - 1), min_size=1)
    forward = [
        Op(f"f{one}", draw(st.integers(0, 9)), "forward", tuple(f"f{i}" for i in range(one)))
        for one in range(count)
    ]
    backward = [
        Op(f"b{one}", draw(st.integers(0, 9)), "backward", (f"f{one}",)) for one in range(count)
    ]
    parameters = [
        Parameter(
            f"w ü{one}",
            draw(st.integers(1, 9)),
            tuple(f"b{i}" for i in draw(some)),
            tuple(f"f{i}" for i in draw(some)),
        )
        for one in range(draw(st.integers(1, 3)))
    ]
    return Graph((*forward, *backward), tuple(parameters))


def assert_round_trip(profile: Profile) -> None:
    text = encode_profile(profile)
    assert decode_profile(text) == profile
    assert decode_profile(text.encode("utf-8", "surrogatepass")) == profile
    schemas.validate(json.loads(text), "profile")


@pytest.mark.slow
@given(profiles())
def test_round_trip(profile: Profile) -> None:
    assert_round_trip(profile)


@pytest.mark.slow
@given(profiles(), graphs(), st.booleans())
def test_round_trip_with_a_graph(profile: Profile, graph: Graph, layers: bool) -> None:
    assert_round_trip(replace(profile, graph=graph, layers=profile.layers if layers else ()))


@pytest.mark.slow
@given(profiles())
def test_round_trip_of_a_dataflow(profile: Profile) -> None:
    assume(any(layer.pushed_bytes for layer in profile.layers))
    assert_round_trip(replace(profile, graph=profile.dataflow(), layers=()))


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


def test_a_graph_without_layers() -> None:
    profile = decode_profile(json.dumps(WITH_GRAPH).encode())
    assert profile.layers == ()
    assert profile.dataflow() == Graph(
        (Op("f", 3, "forward"), Op("F", 6, "backward", ("f",))),
        (Parameter("w", 7, ("F",), ("f",)),),
    )


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"ops": None}, "ops", "missing: parameters come with ops"),
        ({"parameters": None}, "parameters", "missing: ops come with parameters"),
        ({"ops": None, "parameters": None}, "layers", "missing: expected layers, or ops and"),
        ({"ops": []}, "ops", "array of length >= 1"),
        ({"ops": [{"name": "f", "ns": 3}]}, "ops[0].pass", "missing"),
        ({"ops": [{**OPS[0], "pass": "sideways"}]}, "ops[0].pass", "backward, forward"),
        ({"ops": [{**OPS[0], "ns": 1.5}]}, "ops[0].ns", "expected an integer >= 0"),
        ({"ops": [OPS[0], {**OPS[1], "after": ["g"]}]}, "ops[1].after[0]", "no op is called 'g'"),
        ({"ops": [*OPS, OPS[0]]}, "ops[2].name", "given twice"),
        ({"ops": [OPS[0], {**OPS[1], "phase": 1}]}, "ops[1].phase", "unknown field"),
        ({"parameters": [{**PARAMETER, "bytes": 0}]}, "parameters[0].bytes", ">= 1"),
        (
            {"parameters": [{**PARAMETER, "updated_by": 5}]},
            "parameters[0].updated_by",
            "expected a string or an array, got 5",
        ),
        ({"parameters": [{**PARAMETER, "read_by": []}]}, "parameters[0].read_by", "length >= 1"),
        (
            {"parameters": [{**PARAMETER, "read_by": ["f", "F"]}]},
            "parameters[0].read_by[1]",
            "cannot be read in the backward pass",
        ),
        (
            {"parameters": [PARAMETER, {**PARAMETER, "name": "v", "updated_by": "x"}]},
            "parameters[1].updated_by",
            "no op is called 'x'",
        ),
    ],
)
def test_bad_graphs(change: dict[str, object], path: str, message: str) -> None:
    document = {
        name: value for name, value in {**WITH_GRAPH, **change}.items() if value is not None
    }
    with pytest.raises(InvalidInputError) as caught:
        decode_profile(json.dumps(document).encode())
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("given_fields", "valid"),
    [
        (("layers",), True),
        (("ops", "parameters"), True),
        (("layers", "ops", "parameters"), True),
        ((), False),
        (("ops",), False),
        (("parameters",), False),
        (("layers", "ops"), False),
        (("layers", "parameters"), False),
    ],
)
def test_ops_and_parameters_belong_together(given_fields: tuple[str, ...], valid: bool) -> None:
    document = {
        name: value
        for name, value in {**MINIMAL, **WITH_GRAPH}.items()
        if name in ("name", "provenance", *given_fields)
    }
    assert schemas.fits(document, "profile")
    with nullcontext() if valid else pytest.raises(InvalidInputError, match="missing"):
        decode_profile(json.dumps(document).encode())


@pytest.mark.slow
@given(profiles(), st.data())
def test_round_trip_with_parameters(profile: Profile, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 2), min_size=20, max_size=20))
    layers = tuple(
        replace(layer, parameters=tuple(f"w ü{at}.{one}" for one in range(counts[at])))
        for at, layer in enumerate(profile.layers)
    )
    assert_round_trip(replace(profile, layers=layers))


def test_parameters_of_layers_are_written_where_there_are_some() -> None:
    layers = [LAYER, {**LAYER, "name": "b", "parameters": ["b.weight", "b.bias"]}]
    profile = decode_profile(json.dumps({**MINIMAL, "layers": layers}).encode())
    assert [layer.parameters for layer in profile.layers] == [(), ("b.weight", "b.bias")]
    written = json.loads(encode_profile(profile))["layers"]
    assert "parameters" not in written[0]
    assert written[1]["parameters"] == ["b.weight", "b.bias"]


def test_gradients_are_as_large_as_parameters_unless_said_otherwise() -> None:
    layer = decode_profile(json.dumps(MINIMAL).encode()).layers[0]
    assert layer.pushed_bytes == 3


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"layers": []}, "layers"),
        ({"layers": [{"name": "a"}]}, "layers[0].forward_ns"),
        ({"layers": [{**LAYER, "forward_ns": -1}]}, "layers[0].forward_ns"),
        ({"layers": [{**LAYER, "foward": 1}]}, "layers[0].foward"),
        ({"layers": [{**LAYER, "parameters": "w"}]}, "layers[0].parameters"),
        ({"layers": [{**LAYER, "parameters": ["w", 1]}]}, "layers[0].parameters[1]"),
        ({"layers": [{**LAYER, "parameters": ["w", "w"]}]}, "layers[0].parameters[1]"),
        (
            {"layers": [{**LAYER, "parameters": ["w"]}, {**LAYER, "parameters": ["v", "w"]}]},
            "layers[1].parameters[1]",
        ),
        ({"batch_size": 0}, "batch_size"),
        ({"provenance": {"kind": "guessed", "source": ""}}, "provenance.kind"),
        ({"provenance": {"kind": "measured"}}, "provenance.source"),
        ({"nam": 1}, "nam"),
        (
            {"provenance": {"kind": "measured", "source": "", "versions": {"a": "1", "b": 2}}},
            "provenance.versions.b",
        ),
    ],
)
def test_bad_profiles(change: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        decode_profile(json.dumps({**MINIMAL, **change}).encode())
    assert caught.value.path == path
