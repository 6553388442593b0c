"""What transfers cost: exact arithmetic, and fitting."""

from fractions import Fraction
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import AffineCost, InvalidInputError, TableCost
from planner.model.costs import DepthCost
from planner.model.fitting import fit_affine
from planner.model.network import Network
from planner.model.validation import total
from tests.strategies import affine_costs, table_costs

networks = st.builds(
    Network,
    st.fractions(Fraction(1, 9), 10**10, max_denominator=9),
    st.integers(0, 10**6),
    st.fractions(0, 5, max_denominator=9),
)
shares = st.fractions(0, 10**6, max_denominator=50)


@given(networks, shares, shares, st.integers(0, 6), st.integers(1, 10**12))
def test_steps_on_links_start_send_and_add(
    network: Network, sent: Fraction, reduced: Fraction, steps: int, size: int
) -> None:
    rate, each = network.link_bytes_per_s, network.reduce_ns_per_byte
    exact = sent * 10**9 / rate + reduced * each
    assert network.time(sent, reduced, steps) == exact + steps * network.startup_ns
    if sent:
        assert network.step(sent, reduced) == exact + network.startup_ns
    assert network.full_transfer_ns(size) == ceil(size * 10**9 / rate)


def interpolated(points: tuple[tuple[int, int], ...], size: int) -> Fraction:
    if size <= points[0][0]:
        return Fraction(points[0][1])
    segments = list(pairwise(points))
    low, high = next(((a, b) for a, b in segments if size <= b[0]), segments[-1])
    return low[1] + Fraction(high[1] - low[1], high[0] - low[0]) * (size - low[0])


@given(table_costs(), st.integers(0, 300))
def test_tables_are_linear_between_points_and_rounded_up(cost: TableCost, size: int) -> None:
    exact = interpolated(cost.points, size)
    assert cost.cost_ns(size) == ceil(exact)
    pieces = cost.pieces()
    assert (pieces[0].start, pieces[-1].stop) == (0, None)
    assert [one.start for one in pieces[1:]] == [one.stop for one in pieces[:-1]]
    piece = next(one for one in pieces if one.stop is None or size <= one.stop)
    assert piece.time(size) == exact


@given(affine_costs(), st.integers(0, 2**40))
def test_affine_costs_are_exact_and_rounded_up(cost: AffineCost, size: int) -> None:
    assert cost.cost_ns(size) == ceil(cost.startup_ns + cost.ns_per_byte * size)


@given(
    st.one_of(affine_costs(), table_costs()),
    st.lists(st.integers(0, 300) | st.integers(0, 2**40), max_size=20),
)
def test_arrays_cost_what_elements_cost(cost: AffineCost | TableCost, sizes: list[int]) -> None:
    found = cost.costs_ns(np.array(sizes, dtype=np.int64))
    assert found.tolist() == [cost.cost_ns(size) for size in sizes]


def test_arrays_beyond_64_bits_in_between_are_exact() -> None:
    sizes = np.array([2**40 - 1, 2**41], dtype=np.int64)
    table = TableCost(((0, 1), (2**41, 2**60)))
    assert table.costs_ns(sizes).tolist() == [table.cost_ns(2**40 - 1), 2**60]
    affine = AffineCost(1, Fraction(2**40 + 1, 2**41 + 1))
    assert affine.costs_ns(sizes).tolist() == [affine.cost_ns(s) for s in sizes.tolist()]


def test_bandwidth() -> None:
    cost = AffineCost.from_bandwidth(1000, Fraction(10**10, 8))
    assert cost.ns_per_byte == Fraction(4, 5)
    assert cost.cost_ns(10) == 1008


def test_a_table_may_fall_but_not_at_its_end() -> None:
    assert not TableCost(((0, 9), (1, 5), (2, 5))).is_monotone


def test_of_equal_depths_the_least_is_chosen() -> None:
    cost = AffineCost(1, Fraction(1))
    assert DepthCost(((1, cost), (2, cost), (4, cost))).best_depth(10) == 1


def test_sums_end_below_what_means_never() -> None:
    assert total(2**63 - 2, "path", "a sum") == 2**63 - 2
    with pytest.raises(InvalidInputError, match="63 bits"):
        total(2**63 - 1, "path", "a sum")


@pytest.mark.parametrize("samples", [[], [(1, 1)], [(1, 1), (1, 2)], [(1, 0), (2, 1)]])
def test_too_few_or_impossible_measurements(samples: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidInputError):
        fit_affine(samples)
