"""Profiles, their chains, and dataflow graphs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import Layer, Profile, Provenance
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import chain_blocks, unique_names
from tests.caramel.graph_strategies import graphs
from tests.strategies import profiles


def layer(name: str, size: int, block: int | None = None, time: int = 1) -> Layer:
    return Layer(name, time, 2 * time, size, block=block, gradient_ready_ns=time)


def made(*layers: Layer, graph: Graph | None = None) -> Profile:
    return Profile("m", layers, Provenance("synthetic", "a test"), graph=graph)


@pytest.mark.slow
@given(profiles())
def test_a_chain_and_a_graph_keep_all_sums(profile: Profile) -> None:
    chain = profile.chain()
    assert all(unit.parameter_bytes for unit in chain.layers)
    for total in ("forward_ns", "backward_ns", "parameter_bytes"):
        assert getattr(chain, total) == getattr(profile, total)
    sent = sum(one.pushed_bytes for one in profile.layers)
    assert sum(unit.pushed_bytes for unit in chain.layers) == sent
    assert chain.chain() == chain
    if sent:
        alone = made(graph=profile.dataflow())
        known = (profile.forward_ns, profile.backward_ns, sent)
        assert (alone.forward_ns, alone.backward_ns, alone.parameter_bytes) == known


def test_layers_without_parameters_join_the_preceding_one_leading_ones_the_next() -> None:
    sizes = {"pad": 0, "conv": 8, "pool": 0, "fc": 4, "out": 0}
    chain = made(*(layer(name, size) for name, size in sizes.items())).chain()
    assert [(unit.name, unit.forward_ns) for unit in chain.layers] == [("conv", 3), ("fc", 2)]


GRAPH = Graph(
    (
        Op("f", 3, "forward"),
        Op("g", 4, "forward", ("f",)),
        Op("G", 5, "backward", ("g",)),
        Op("F", 6, "backward", ("G", "f")),
    ),
    (Parameter("w", 7, ("F", "G"), ("f",)), Parameter("v", 8, ("G",), ("g",))),
)
COMPRESSED = Layer("a", 1, 1, 8, gradient_bytes=2)
FROZEN = Layer("b", 1, 1, 8, gradient_bytes=0)
LISTED = (
    replace(layer("a", 4, 0), parameters=("w",)),
    layer("r", 0, 1),
    replace(layer("b", 4, 1), parameters=("x", "y")),
)


def test_the_dataflow_of_layers_is_a_chain_of_what_is_sent() -> None:
    layers = (layer("a", 8), layer("b", 0, time=3), layer("c", 4))
    assert made(*layers).dataflow() == Graph(
        (
            Op("a/forward", 1, "forward"),
            Op("b/forward", 3, "forward", ("a/forward",)),
            Op("c/forward", 1, "forward", ("b/forward",)),
            Op("c/backward", 2, "backward", ("c/forward",)),
            Op("b/backward", 6, "backward", ("c/backward", "b/forward")),
            Op("a/backward", 2, "backward", ("b/backward", "a/forward")),
        ),
        (
            Parameter("a", 8, ("a/backward",), ("a/forward",)),
            Parameter("c", 4, ("c/backward",), ("c/forward",)),
        ),
    )
    (parameter,) = made(COMPRESSED, FROZEN).dataflow().parameters
    assert (parameter.name, parameter.size_bytes) == ("a", 2)


def test_a_graph_goes_before_the_layers_and_may_be_all_there_is() -> None:
    profile = made(layer("a", 8), graph=GRAPH)
    assert profile.dataflow() is GRAPH
    assert profile.forward_ns == 1
    chain = profile.chain()
    assert chain.graph is None
    assert len(chain.dataflow().ops) == 2
    profile = made(graph=GRAPH)
    assert (profile.forward_ns, profile.backward_ns, profile.parameter_bytes) == (7, 11, 15)
    assert profile.dataflow() is GRAPH


def test_layers_may_list_their_parameters() -> None:
    profile = made(*LISTED, graph=GRAPH)
    assert replace(profile, layers=(layer("a", 1),)).layer_parameters() is None
    assert profile.layer_parameters() == (("w",), (), ("x", "y"))
    assert profile.chain().layer_parameters() == (("w",), ("x", "y"))
    partly = made(*LISTED, layer("c", 1, 1))
    assert partly.layer_parameters() is None
    assert partly.chain().layer_parameters() is None


@given(st.lists(st.sampled_from(["a", "b", "a#2", "a#3", "a#2#2"])))
def test_names_are_made_distinct(names: list[str]) -> None:
    found = unique_names(names)
    assert len(set(found)) == len(names)
    for index, (name, made) in enumerate(zip(names, found, strict=True)):
        assert made.startswith(name)
        assert (made == name) == (name not in names[:index])


@given(st.integers(1, 8), st.data())
def test_blocks_are_what_lies_between_clean_cuts(count: int, data: st.DataObject) -> None:
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    blocks = chain_blocks(count, edges)
    assert blocks[0] == 0
    for node, (one, other) in enumerate(pairwise(blocks)):
        clean = all(not (a < node < b) for a, b in edges)
        assert (other == one + 1) if clean else (other == one)


@given(graphs())
def test_the_topological_order_is_one_and_stable(graph: Graph) -> None:
    order = graph.topological
    place = {index: position for position, index in enumerate(order)}
    assert sorted(order) == list(range(len(graph.ops)))
    for index, needed in enumerate(graph.predecessors):
        assert all(place[one] < place[index] for one in needed)
    for one, two in pairwise(order):
        # The next op was not ready, or is behind in the request.
        ready = all(place[needed] < place[one] for needed in graph.predecessors[two])
        assert one < two or not ready or one in graph.predecessors[two]
    both = graph.pass_order("backward"), graph.pass_order("forward")
    assert sorted([*both[0], *both[1]]) == list(range(len(graph.ops)))
