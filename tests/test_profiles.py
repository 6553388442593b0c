"""Profiles, their chains, and dataflow graphs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError, Layer, Profile, Provenance
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import chain_blocks, unique_names
from tests.caramel.graph_strategies import graphs
from tests.strategies import profiles


def layer(name: str, size: int, block: int | None = None, time: int = 1) -> Layer:
    return Layer(name, time, 2 * time, size, block=block, gradient_ready_ns=time)


@pytest.mark.slow
@given(profiles())
def test_a_chain_keeps_all_sums_and_leaves_no_unit_without_parameters(profile: Profile) -> None:
    chain = profile.chain()
    assert all(unit.parameter_bytes for unit in chain.layers)
    for total in ("forward_ns", "backward_ns", "parameter_bytes"):
        assert getattr(chain, total) == getattr(profile, total)
    sent = sum(unit.pushed_bytes for unit in chain.layers)
    assert sent == sum(one.pushed_bytes for one in profile.layers)
    assert chain.chain() == chain


def made(*layers: Layer, graph: Graph | None = None) -> Profile:
    return Profile("m", layers, Provenance("synthetic", "a test"), graph=graph)


def test_layers_without_parameters_join_the_preceding_one_leading_ones_the_next() -> None:
    sizes = {"pad": 0, "conv": 8, "pool": 0, "fc": 4, "out": 0}
    chain = made(*(layer(name, size) for name, size in sizes.items())).chain()
    assert [(unit.name, unit.forward_ns) for unit in chain.layers] == [("conv", 3), ("fc", 2)]
    with pytest.raises(InvalidInputError, match="parameters"):
        made(layer("a", 0)).chain()


GRAPH = Graph(
    (
        Op("f", 3, "forward"),
        Op("g", 4, "forward", ("f",)),
        Op("G", 5, "backward", ("g",)),
        Op("F", 6, "backward", ("G", "f")),
    ),
    (Parameter("w", 7, ("F", "G"), ("f",)), Parameter("v", 8, ("G",), ("g",))),
)


def test_the_dataflow_of_layers_is_a_chain() -> None:
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


def test_the_dataflow_counts_what_is_sent() -> None:
    compressed = Layer("a", 1, 1, 8, gradient_bytes=2)
    frozen = Layer("b", 1, 1, 8, gradient_bytes=0)
    graph = made(compressed, frozen).dataflow()
    assert [(parameter.name, parameter.size_bytes) for parameter in graph.parameters] == [("a", 2)]
    with pytest.raises(InvalidInputError, match="gradients to send") as caught:
        made(frozen).dataflow()
    assert caught.value.path == "layers"


@given(profiles())
def test_the_dataflow_keeps_times_and_sizes(profile: Profile) -> None:
    sent = sum(one.pushed_bytes for one in profile.layers)
    if not sent:
        return
    graph = profile.dataflow()
    assert sum(parameter.size_bytes for parameter in graph.parameters) == sent
    only_graph = made(graph=graph)
    assert only_graph.forward_ns == profile.forward_ns
    assert only_graph.backward_ns == profile.backward_ns
    assert only_graph.parameter_bytes == sent


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
    with pytest.raises(InvalidInputError, match="'m' has a dataflow graph only") as caught:
        profile.chain()
    assert caught.value.path == "layers"
    with pytest.raises(InvalidInputError) as caught:
        made(graph="a, b")  # type: ignore[arg-type]
    assert caught.value.path == "graph"


@given(st.lists(st.sampled_from(["a", "b", "a#2", "a#3", "a#2#2"])))
def test_names_are_made_distinct(names: list[str]) -> None:
    found = unique_names(names)
    assert len(set(found)) == len(names)
    for index, (name, made) in enumerate(zip(names, found, strict=True)):
        assert made.startswith(name)
        assert (made == name) == (name not in names[:index])


def test_layers_may_list_their_parameters() -> None:
    layers = (
        replace(layer("a", 4, 0), parameters=("w",)),
        layer("r", 0, 1),
        replace(layer("b", 4, 1), parameters=("x", "y")),
    )
    profile = made(*layers, graph=GRAPH)
    assert replace(profile, layers=(layer("a", 1),)).layer_parameters() is None
    assert profile.layer_parameters() == (("w",), (), ("x", "y"))
    assert profile.chain().layer_parameters() == (("w",), ("x", "y"))
    partly = made(*layers, layer("c", 1, 1))
    assert partly.layer_parameters() is None
    assert partly.chain().layer_parameters() is None
    for again in ("w", "x"):
        twice = replace(layers[2], parameters=("x", again))
        with pytest.raises(InvalidInputError, match="given twice") as caught:
            made(*layers[:2], twice)
        assert caught.value.path == "layers[2].parameters[1]"


@given(st.integers(1, 8), st.data())
def test_blocks_are_what_lies_between_clean_cuts(count: int, data: st.DataObject) -> None:
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    blocks = chain_blocks(count, edges)
    assert blocks[0] == 0
    for node, (one, other) in enumerate(pairwise(blocks)):
        clean = all(not (a < node < b) for a, b in edges)
        assert (other == one + 1) if clean else (other == one)


def test_sums_beyond_the_range_are_refused() -> None:
    for layers in (
        (layer("a", 2**62), layer("b", 2**62)),
        (layer("a", 1, time=2**61), layer("b", 1, time=2**61)),
    ):
        with pytest.raises(InvalidInputError, match="sum of"):
            made(*layers)
    with pytest.raises(InvalidInputError):
        made()
    with pytest.raises(InvalidInputError):
        Provenance("guessed", "")  # type: ignore[arg-type]


F1, B1 = Op("f1", 1, "forward"), Op("b1", 1, "backward", ("f1",))
W1 = Parameter("w1", 4, ("b1",), ("f1",))


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


def test_neighbours_are_seen_from_both_sides() -> None:
    graph = Graph((B1, F1), (W1,))
    assert graph.predecessors == ((1,), ())
    assert graph.successors == ((), (0,))
    assert graph.topological == (1, 0)
    assert graph.updaters == ((0,),)
    assert graph.readers == ((1,),)


def test_a_backward_op_may_depend_on_the_forward_pass_through_others() -> None:
    Graph((F1, B1, Op("b2", 0, "backward", ("b1",))), (W1,))
