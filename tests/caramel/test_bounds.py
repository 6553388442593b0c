"""The start-up-aware bound: never above the optimum, and for chains met by its own groups."""

from fractions import Fraction
from math import ceil
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.bounds import Targets, inner_nesting, lower_bound, outer_nesting
from planner.families.caramel.grid_bounds import _Blocks, block_bound, tighter_bound
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, DepthCost, TableCost, TransferCost, supporting_lines
from planner.testing import strategies as testing
from tests.caramel.exact_oracles import best_by_enumeration, best_split, is_complete, unrounded
from tests.caramel.window_strategies import nested_windows, windows_strategy

costs = testing.costs() | testing.depth_costs()


@settings(max_examples=400)
@given(windows_strategy(4), costs)
def test_no_plan_of_whole_parameters_beats_the_bound(known: Windows, cost: TransferCost) -> None:
    assert lower_bound(known, cost) <= best_by_enumeration(known, cost)


@settings(max_examples=300)
@given(windows_strategy(3, max_bytes=4), costs)
def test_no_plan_that_cuts_beats_the_bound(known: Windows, cost: TransferCost) -> None:
    assert lower_bound(known, cost) <= best_split(known, cost)


@settings(max_examples=500)
@given(nested_windows(7), st.integers(0, 40), st.integers(1, 9))
def test_a_chain_meets_the_bound_up_to_rounding(known: Windows, startup: int, rate: int) -> None:
    cost = AffineCost(startup, Fraction(rate))
    (nested,) = outer_nesting(known)
    targets = Targets(nested, [(Fraction(startup), Fraction(rate))])
    least, openings = targets.least(known.compute_ns)
    pricer = LoadPricer(known, cost)
    loads = targets.cut_loads(least, openings)
    # Each transfer may lack part of a byte that then travels elsewhere.
    assert least <= pricer.iteration_ns(loads) <= least + rate * (len(openings) * 2 + 1)
    assert least == lower_bound(known, cost)


@settings(max_examples=300)
@given(windows_strategy(6), st.integers(0, 40), st.integers(1, 9))
def test_loads_carry_every_byte_once(known: Windows, startup: int, rate: int) -> None:
    for nested in (*inner_nesting(known), *outer_nesting(known)):
        targets = Targets(nested, [(Fraction(startup), Fraction(rate))])
        least, openings = targets.least(known.compute_ns)
        for loads in (targets.cut_loads(least, openings, 2), targets.whole_loads(openings)):
            assert is_complete(known, loads)


@settings(max_examples=300)
@given(windows_strategy(6))
def test_nested_windows_contain_and_are_contained(known: Windows) -> None:
    for nests, inside in ((outer_nesting(known), False), (inner_nesting(known), True)):
        for nested in nests:
            assert list(nested.heads) == sorted(nested.heads, reverse=True)
            assert list(nested.tails) == sorted(nested.tails, reverse=True)
            for members, head, tail in zip(nested.members, nested.heads, nested.tails, strict=True):
                for j in members:
                    ends = (known.heads[j], known.tails[j])
                    wide, narrow = (ends, (head, tail)) if inside else ((head, tail), ends)
                    assert wide[0] <= narrow[0]
                    assert wide[1] <= narrow[1]


@settings(max_examples=300)
@given(costs, st.integers(1, 200))
def test_no_size_undercuts_a_supporting_line(cost: TransferCost, largest: int) -> None:
    lines = supporting_lines(cost, largest)
    assert lines
    for startup, rate in lines:
        assert startup >= 0
        assert rate >= 0
        sizes = range(1, largest + 1)
        assert all(startup + rate * size <= unrounded(cost, size) for size in sizes)


def test_an_affine_cost_is_its_own_line() -> None:
    lines = supporting_lines(AffineCost(7, Fraction(3, 2)), 100)
    assert (Fraction(7), Fraction(3, 2)) in lines


def test_start_ups_count() -> None:
    # Two gradients, the second ready when the first must have gone: two transfers, two start-ups.
    known = Windows((10, 10), (0, 100), (100, 0), 100, 100)
    cost = AffineCost(50, Fraction(1))
    assert lower_bound(known, cost) == 200
    narrow = Windows((60, 60), (0, 100), (100, 0), 100, 100)
    assert lower_bound(narrow, cost) == 220
    assert preemptive_bound(narrow, cost) < 220


@pytest.mark.parametrize("size", [1, 10, 10**6])
def test_the_pieces_of_a_cost_are_the_cost(size: int) -> None:
    table = TableCost(((0, 5), (10, 25), (100, 40)))
    deep = DepthCost(((1, table), (4, AffineCost(30, Fraction(1, 10)))))
    for cost in (table, AffineCost(3, Fraction(1, 3)), deep):
        assert ceil(unrounded(cost, size)) == cost.cost_ns(size)


@settings(max_examples=200)
@given(windows_strategy(4) | windows_strategy(3, max_bytes=4), costs, st.sampled_from([1, 2, 160]))
def test_no_target_that_can_be_reached_is_refuted(
    known: Windows, cost: TransferCost, grid: int
) -> None:
    small = max(known.sizes) <= 4 and len(known.sizes) <= 3
    best = best_split(known, cost) if small else best_by_enumeration(known, cost)
    for line in supporting_lines(cost, sum(known.sizes)):
        assert block_bound(known, line, 0, best + 1) <= best
        if all(line):
            with patch("planner.families.caramel.grid_bounds.GRID", grid):
                blocks = _Blocks(known, line)
            assert not any(blocks.refuted(best, by_heads=one) for one in (True, False))


@settings(max_examples=200)
@given(nested_windows(7), st.integers(40, 80), st.integers(1, 9))
def test_in_a_chain_blocks_refute_what_nested_windows_do(
    known: Windows, startup: int, rate: int
) -> None:
    line = Fraction(startup), Fraction(rate)
    (nested,) = outer_nesting(known)
    least, _ = Targets(nested, [line]).least(0)
    blocks = _Blocks(known, line)
    for one in (True, False):
        assert not blocks.refuted(least, by_heads=one)
        assert blocks.refuted(least - 1, by_heads=one)


def test_blocks_see_more_than_widened_windows() -> None:
    # The third gradient is ready late and read last: to nest, the others' windows are widened.
    known = Windows((10, 10, 20, 40), (80, 10, 70, 60), (90, 100, 0, 80), 100, 100)
    cost = AffineCost(30, Fraction(1))
    low, best = lower_bound(known, cost), best_by_enumeration(known, cost)
    assert low < tighter_bound(known, cost, low, best) <= best
