"""Profiles, chains and graphs; what transfers cost, exactly, and models fitted to made-up times."""

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil
from statistics import median_low
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import planner
from planner import Layer, Profile, Provenance
from planner.jsonio.network import decode_network
from planner.jsonio.network_measurements import encode_network
from planner.model import fitting
from planner.model.clusters import Nic
from planner.model.costs import AffineCost, DepthCost, TableCost
from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import chain_blocks, unique_names
from planner.model.network import Network
from planner.model.validation import total
from planner.testing import networks
from tests.caramel.graph_strategies import graphs
from tests.jsonio.requests import BASES
from tests.strategies import affine_costs, profiles, table_costs


def layer(name: str, size: int, block: int | None = None, time: int = 1) -> Layer:
    return Layer(name, time, 2 * time, size, block=block, gradient_ready_ns=time)


def made(*layers: Layer, graph: Graph | None = None) -> Profile:
    return Profile("m", layers, Provenance("synthetic", "a test"), graph=graph)


@pytest.mark.slow
@given(profiles())
def test_a_chain_and_a_graph_keep_all_sums(profile: Profile) -> None:
    chain = profile.chain()
    assert all(unit.parameter_bytes for unit in chain.layers)
    for field in ("forward_ns", "backward_ns", "parameter_bytes"):
        assert getattr(chain, field) == getattr(profile, field)
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
    one = Layer("a", 1, 1, 8, gradient_bytes=2)
    compressed, frozen = one, replace(one, name="b", gradient_bytes=0)
    (parameter,) = made(compressed, frozen).dataflow().parameters
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
    first, last = (
        replace(layer(name, 4, block), parameters=names)
        for name, block, names in (("a", 0, ("w",)), ("b", 1, ("x", "y")))
    )
    listed = (first, layer("r", 0, 1), last)
    profile = made(*listed, graph=GRAPH)
    assert replace(profile, layers=(layer("a", 1),)).layer_parameters() is None
    assert profile.layer_parameters() == (("w",), (), ("x", "y"))
    assert profile.chain().layer_parameters() == (("w",), ("x", "y"))
    partly = made(*listed, layer("c", 1, 1))
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


@given(networks(), st.integers(1, 10**12))
def test_a_full_transfer_is_rounded_up(network: Network, size: int) -> None:
    assert network.full_transfer_ns(size) == ceil(size * 10**9 / network.link_bytes_per_s)


@given(table_costs(), st.integers(0, 300))
def test_tables_are_linear_between_points_and_rounded_up(cost: TableCost, size: int) -> None:
    segments = list(pairwise(cost.points))
    low, high = next(((a, b) for a, b in segments if size <= b[0]), segments[-1])
    beyond = max(0, size - low[0])
    exact = low[1] + Fraction(high[1] - low[1], high[0] - low[0]) * beyond
    assert cost.cost_ns(size) == ceil(exact)
    pieces = cost.pieces()
    assert (pieces[0].start, pieces[-1].stop) == (0, None)
    assert [one.start for one in pieces[1:]] == [one.stop for one in pieces[:-1]]
    piece = next(one for one in pieces if one.stop is None or size <= one.stop)
    assert piece.time(size) == exact


@given(
    affine_costs() | table_costs(),
    st.lists(st.integers(0, 300) | st.integers(0, 2**40), max_size=20),
)
def test_affine_costs_are_rounded_up_and_arrays_cost_what_elements_cost(
    cost: AffineCost | TableCost, sizes: list[int]
) -> None:
    found = cost.costs_ns(np.array(sizes, dtype=np.int64))
    assert found.tolist() == [cost.cost_ns(size) for size in sizes]
    if isinstance(cost, AffineCost):
        exact = [cost.startup_ns + cost.ns_per_byte * size for size in sizes]
        assert found.tolist() == [ceil(time) for time in exact]


def test_arrays_beyond_64_bits_in_between_are_exact() -> None:
    sizes = np.array([2**40 - 1, 2**41], dtype=np.int64)
    table = TableCost(((0, 1), (2**41, 2**60)))
    assert table.costs_ns(sizes).tolist() == [table.cost_ns(2**40 - 1), 2**60]
    affine = AffineCost(1, Fraction(2**40 + 1, 2**41 + 1))
    assert affine.costs_ns(sizes).tolist() == [affine.cost_ns(s) for s in sizes.tolist()]


def test_a_rate_is_exact_a_table_may_fall_and_the_least_of_equal_depths_is_chosen() -> None:
    """Sums end below what means never."""
    cost = AffineCost.from_bandwidth(1000, Fraction(10**10, 8))
    assert (cost.ns_per_byte, cost.cost_ns(10)) == (Fraction(4, 5), 1008)
    assert not TableCost(((0, 9), (1, 5), (2, 5))).is_monotone
    assert DepthCost(((1, cost), (2, cost), (4, cost))).best_depth(10) == 1  # the least of equals
    assert total(2**63 - 2, "path", "a sum") == 2**63 - 2
    with pytest.raises(InvalidInputError, match="63 bits"):
        total(2**63 - 1, "path", "a sum")


@pytest.mark.parametrize("samples", [[], [(1, 1)], [(1, 1), (1, 2)], [(1, 0), (2, 1)]])
def test_too_few_or_impossible_measurements(samples: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidInputError):
        fitting.fit_affine(samples)


def swept(*depths: Sequence[Sequence[int]]) -> fitting.Sweep:
    """Make a sweep of rows (bytes, time, time, …), a list of rows for each depth 1, 2, …"""
    rows = [(depth, *row) for depth, rows in enumerate(depths, 1) for row in rows]
    timings = tuple(fitting.Timing(size, depth, tuple(times)) for depth, size, *times in rows)
    return fitting.Sweep("all_reduce", "ring", 4, 2, len(depths[0][0]) - 1, timings)


def fitted(rows: Sequence[Sequence[int]]) -> fitting.DepthFit:
    ((depth, fit),) = fitting.fit_network(swept(rows)).by_depth
    assert depth == 1
    return fit


LINE = [(size, 150_000 + 3 * size) for size in (64, 1024, 65_536, 4_000_000)]
TWICE = [(size, 2 * time) for size, time in LINE]


def test_at_every_depth_what_lies_on_a_line_is_fitted_exactly() -> None:
    sweep = swept(LINE, TWICE)
    fit = fitting.fit_network(sweep)
    lines = AffineCost(150_000, Fraction(3)), AffineCost(300_000, Fraction(6))
    assert fit.cost("two_point") == DepthCost(tuple(enumerate(lines, 1)))
    tables = TableCost(tuple(LINE)), TableCost(tuple(TWICE))
    assert fit.cost("table") == DepthCost(tuple(enumerate(tables, 1)))
    for (depth, found), line in zip(fit.by_depth, lines, strict=True):
        assert found.affine.startup_ns == line.startup_ns
        assert float(found.affine.ns_per_byte) == pytest.approx(float(line.ns_per_byte), rel=1e-9)
        for cost in (found.table, found.affine, line):
            errors = fitting.relative_errors(cost, sweep.at(depth))
            assert errors == pytest.approx([0] * 4, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_the_affine_fit_is_the_least_squares_of_relative_errors(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = np.array(fitting.sweep_sizes(10**6))
    times = ((2e5 + 0.8 * sizes) * random.uniform(0.8, 1.3, sizes.size)).astype(int)
    cost = fitted(list(zip(sizes.tolist(), times.tolist(), strict=True))).affine
    design = np.column_stack([1 / times, sizes / times])
    (startup, rate), *_ = np.linalg.lstsq(design, np.ones(sizes.size))
    assert min(startup, rate) > 0
    assert cost.startup_ns == pytest.approx(startup, rel=1e-4)
    assert float(cost.ns_per_byte) == pytest.approx(rate, rel=1e-4)


def test_an_affine_fit_does_not_start_below_zero() -> None:
    cost = fitted([(100, 100), (1000, 3000), (10_000, 50_000)]).affine
    assert cost.startup_ns == 0
    ratios = np.array([1, 1000 / 3000, 10_000 / 50_000])  # of bytes to times
    assert float(cost.ns_per_byte) == pytest.approx(ratios.sum() / (ratios**2).sum())


def deviation(value: float, times: Sequence[int]) -> float:
    return sum(abs(value - time) for time in times)


sizes_of_samples = st.tuples(st.integers(1, 4), st.integers(2, 7))


@given(sizes_of_samples.flatmap(lambda size: arrays(int, size[::-1], elements=st.integers(1, 12))))
def test_the_table_is_the_nearest_function_that_never_falls(drawn: NDArray[np.int64]) -> None:
    """Every never falling choice of sampled values is tried, by dynamic programming."""
    samples: list[list[int]] = drawn.tolist()
    known = sorted({time for times in samples for time in times})
    best = [0.0] * len(known)
    for sample in samples:
        here = [deviation(value, sample) for value in known]
        best = [min(best[: place + 1]) + cost for place, cost in enumerate(here)]
    rows = [(64 * place, *times) for place, times in enumerate(samples, 1)]
    table = fitted(rows).table
    times = dict(table.points)
    assert table.is_monotone
    assert table.points[-1][0] == rows[-1][0]
    values = [times.get(row[0], table.points[-1][1]) for row in rows]
    assert sum(map(deviation, values, samples)) == min(best)
    if len({time for _, time in table.points}) > 1:
        assert table.points[-1][1] > table.points[-2][1]
    medians = [median_low(sample) for sample in samples]
    if all(low < high for low, high in pairwise(medians)):
        assert [time for _, time in table.points] == medians


def test_the_last_slope_is_not_that_of_a_pool() -> None:
    fit = fitted([(64, 10), (1000, 100), (2000, 220), (4000, 200)])
    assert fit.table.points == ((64, 10), (1000, 100), (4000, 200))
    assert fit.table.cost_ns(40_000) == 200 + 36_000 // 30


NO_LINE = {
    "no 4 MB": [(64, 10), (128, 20)],
    "no 64 B": [(128, 10), (4_000_000, 20)],
    "it falls": [(64, 20), (4_000_000, 10)],
    "it starts below 0": [(64, 1), (4_000_000, 4_000_000)],
}


@pytest.mark.parametrize("rows", NO_LINE.values(), ids=NO_LINE)
def test_without_a_line_through_two_points(rows: list[tuple[int, int]]) -> None:
    assert fitted(rows).two_point is None
    assert fitting.fit_network(swept(rows)).cost("two_point") is None
    assert "two_point" not in written_of(swept(rows))


def test_medians_and_spreads() -> None:
    timing = fitting.Timing(64, 1, (50, 10, 40, 20, 30))
    assert (timing.median_ns, timing.spread_ns) == (30, 20)
    assert fitting.Timing(64, 1, (7,)).spread_ns == 0
    assert fitting.Timing(64, 1, (4, 1, 2, 3)).median_ns == 2


@pytest.mark.parametrize("largest", [128, 1000, 4_000_000, 4 * 2**20, 64 * 10**6])
def test_sizes_of_a_sweep(largest: int) -> None:
    sizes = fitting.sweep_sizes(largest)
    assert (sizes[0], sizes[-1]) == (64, largest)
    assert all(size % 4 == 0 for size in sizes)
    assert all(1.4 <= high / low <= 2.9 for low, high in pairwise(sizes))
    assert (4_000_000 in sizes) == (largest in (4_000_000, 64 * 10**6))


@pytest.mark.parametrize("largest", [0, 64, 127, 130, -4])
def test_sizes_that_cannot_be_swept(largest: int) -> None:
    with pytest.raises(InvalidInputError, match="largest"):
        fitting.sweep_sizes(largest)


NOISY = [(64, 5, 7, 6), (128, 3, 4, 9), (1000, 90, 95, 80), (4_000_000, 900, 800, 1000)]


def written_of(sweep: fitting.Sweep, **provenance: str) -> Any:
    return json.loads(encode_network(sweep, fitting.fit_network(sweep), provenance))


@pytest.mark.parametrize("depths", [1, 3])
def test_what_is_written_is_what_requests_take(depths: int) -> None:
    sweep = swept(*[NOISY] * depths)
    fit, written = fitting.fit_network(sweep), written_of(sweep, date="2026-01-02")
    answer = planner.solve({**BASES["one"], "network": written["network"]})
    assert answer["status"] in ("optimal", "feasible")
    table = fit.cost("table")
    assert table is not None
    assert answer["groups"][0]["end_ns"] - answer["groups"][0]["start_ns"] == table.cost_ns(4096)
    found = decode_network(json.dumps(written).encode())
    assert (found.network, found.collective) == (table, "all_reduce")
    assert (found.algorithm, found.ranks) == ("ring", 4)
    for model in ("affine", "two_point"):
        expected, got = fit.cost(model), decode_network(json.dumps(written[model]).encode()).network
        assert expected is not None
        assert not isinstance(got, Nic)
        assert got.cost_ns(10**6) == pytest.approx(expected.cost_ns(10**6), rel=1e-9)
    assert written["provenance"]["date"] == "2026-01-02"
    counted = [one["depth"] for one in written["timings"]]
    assert counted == sorted([*range(1, depths + 1)] * len(NOISY))
    first = written["timings"][0]
    assert (first["bytes"], first["median_ns"], first["least_ns"]) == (64, 6, 5)
    assert first["table_error"] == pytest.approx(5 / 6 - 1, abs=1e-6)  # pooled with the next


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"network": {"table": [[1, 2]]}}, "network.table: expected an array of length >= 2"),
        ({"network": {"table": [[1, 2], [1, 3]]}}, r"network.table\[1\]\[0\]: expected an integer"),
        ({"network": {"table": [[1, 5], [2, 3]]}}, r"network.table\[1\]\[1\]: expected an integer"),
        ({"affine": {"startup_ns": -5}}, "affine.startup_ns: expected"),
        ({"collective": "broadcast"}, "collective: expected one of all_gather, all_reduce"),
        ({"ranks": 1}, "ranks: expected an integer >= 2, got 1"),
        ({"colective": "x"}, "colective: unknown field; did you mean 'collective'"),
    ],
)
def test_what_is_wrong_in_a_file(change: dict[str, Any], expected: str) -> None:
    good = {"network": {"table": [[1, 2], [2, 3]]}, "collective": "all_reduce", "ranks": 2}
    assert decode_network(json.dumps(good).encode()).ranks == 2
    with pytest.raises(InvalidInputError, match=expected):
        decode_network(json.dumps({**good, **change}).encode())
