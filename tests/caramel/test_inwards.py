"""The bound and the plans for concave costs, against plans that are known to be the best."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.bounds import (
    Nested,
    Targets,
    concave_bounds,
    inner_nesting,
    lower_bound,
    outer_nesting,
)
from planner.families.caramel.grid_bounds import (
    concave_bound,
    concave_loads,
    grid_of,
    tighter_bound,
)
from planner.families.caramel.grid_costs import GridCost
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, DepthCost, TransferCost
from tests.caramel.exact_oracles import best_split, is_complete, price
from tests.caramel.window_strategies import nested_windows, windows_strategy


@st.composite
def depth_costs(draw: st.DrawFn) -> DepthCost:
    """Two or three depths, the deeper ones for fewer bytes a start-up mostly."""
    rate, startup = draw(st.integers(1, 12)), draw(st.integers(0, 6))
    by_depth = []
    for depth in range(1, draw(st.integers(2, 3)) + 1):
        by_depth.append((depth, AffineCost(startup, Fraction(rate, draw(st.sampled_from([1, 3]))))))
        startup, rate = startup + draw(st.integers(0, 8)), draw(st.integers(0, rate))
    return DepthCost(tuple(by_depth))


def lines(cost: TransferCost) -> tuple[tuple[Fraction, Fraction], ...]:
    return tuple((piece.value_ns, piece.slope) for piece in cost.pieces())


def grid_cost(nested: Nested, cost: TransferCost) -> GridCost:
    return GridCost.of_cost(cost, sum(map(sum, nested.loads)))


few = nested_windows(3).map(  # few bytes: the oracle tries every cut
    lambda one: replace(one, sizes=tuple(1 + size % 4 for size in one.sizes))
)
grids = st.sampled_from([1, 2, 5, 16, 40])


@settings(max_examples=300)
@given(few | windows_strategy(3, max_bytes=4), depth_costs(), grids)
def test_no_plan_that_cuts_beats_the_bound(known: Windows, cost: DepthCost, grid: int) -> None:
    assert concave_bound(known, lines(cost), grid) <= best_split(known, cost)


def test_a_transfer_may_begin_before_the_middle_and_end_in_it() -> None:
    """The outer bytes start at 0, and take until 13; by 10, when the others are ready, few fit."""
    known = Windows((1, 10), (10, 0), (0, 0), 10, 0)
    cost = DepthCost(((1, AffineCost(1, Fraction(2))), (2, AffineCost(8, Fraction(1, 2)))))
    mirrored = Windows((1, 10), (0, 0), (10, 0), 0, 10)
    for one in (known, mirrored):
        assert best_split(one, cost) == concave_bound(one, lines(cost)) == 16
        (nested,) = outer_nesting(one)
        assert (
            LoadPricer(one, cost).iteration_ns(concave_loads(nested, grid_cost(nested, cost))) == 16
        )


@pytest.mark.slow
@settings(max_examples=300)
@given(windows_strategy(7), depth_costs(), grids, st.integers(1, 5))
def test_a_plan_carries_every_byte_once(
    known: Windows, cost: DepthCost, grid: int, element: int
) -> None:
    pricer = LoadPricer(known, cost)
    for nested in (*inner_nesting(known), *outer_nesting(known)):
        loads = concave_loads(nested, grid_cost(nested, cost), element, grid)
        assert is_complete(known, loads)
        odd = Counter(j for load in loads for j, size in load if size % element)
        assert set(odd.values()) <= {1}  # where a parameter ends inside an element
        assert price(known, cost, loads) == pricer.iteration_ns(loads)
        assert concave_bound(known, lines(cost), grid) <= pricer.iteration_ns(loads)


@settings(max_examples=200)
@given(nested_windows(7), st.integers(0, 40), st.integers(1, 9), grids)
def test_for_a_line_nothing_is_above_the_least_target(
    known: Windows, startup: int, rate: int, grid: int
) -> None:
    """With one line the least target of nested windows is known: an oracle for any sizes."""
    (nested,) = outer_nesting(known)
    line = (Fraction(startup), Fraction(rate))
    least, _ = Targets(nested, [line]).least(0)
    assert concave_bound(known, [line], grid) <= least
    assert concave_bound(known, [line, line], grid) <= least


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 40))
def test_a_grid_reaches_from_nothing_to_the_largest_moment(moments: list[int], count: int) -> None:
    grid = grid_of(moments, count)
    assert grid[0] == 0
    assert grid[-1] == max(moments)
    assert all(grid[1:] > grid[:-1])
    assert len(grid) <= count + 4


def test_the_bound_knows_how_much_each_transfer_carries() -> None:
    """Small windows around one that is large: what is sent outside wants another depth."""
    heads, tails = (100, 100_000, 200_000, 300_000), (100, 60_000, 120_000, 180_000)
    known = Windows((40_000, 40_000, 40_000, 200_000), heads, tails, 300_000, 180_000)
    depths = (1, AffineCost(20_000, Fraction(8))), (8, AffineCost(120_000, Fraction(4)))
    cost = DepthCost(depths)
    (nested,) = outer_nesting(known)
    weak = lower_bound(known, cost)
    assert len(concave_bounds(cost, sum(known.sizes))[-1]) == 2
    strong = concave_bound(known, lines(cost))
    best = LoadPricer(known, cost).iteration_ns(concave_loads(nested, grid_cost(nested, cost)))
    assert weak < 0.95 * strong
    assert best < 1.01 * strong
    assert tighter_bound(known, cost, weak, best) >= strong
