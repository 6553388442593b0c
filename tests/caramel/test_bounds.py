"""Bounds that no plan beats, met by chains; Carlier's branch and bound, Jackson's schedule."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from unittest.mock import patch

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
from planner.families.caramel.carlier import carlier, schrage
from planner.families.caramel.grid_bounds import (
    _Blocks,
    block_bound,
    concave_bound,
    concave_loads,
    tighter_bound,
)
from planner.families.caramel.grid_costs import GridCost
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, DepthCost, TransferCost, least_rate, supporting_lines
from planner.solving.deadline import NEVER, Deadline
from planner.solving.jackson import preemptive
from planner.solving.tie_break import NOMINAL, Step, delayed_makespan
from planner.testing import strategies as testing
from tests.caramel.exact_oracles import (
    best_by_enumeration,
    best_sequence,
    best_split,
    is_complete,
    preemptive_value,
    price,
    unrounded,
)
from tests.caramel.window_strategies import nested_windows, windows_strategy
from tests.strategies import huge, times

costs = testing.costs() | testing.depth_costs()


@settings(max_examples=700)
@given(windows_strategy(4) | windows_strategy(3, max_bytes=4), costs, st.sampled_from([1, 2, 160]))
def test_no_plan_beats_the_bound_and_no_target_that_can_be_reached_is_refuted(
    known: Windows, cost: TransferCost, grid: int
) -> None:
    small = max(known.sizes) <= 4 and len(known.sizes) <= 3  # so that every cut can be tried
    best = best_split(known, cost) if small else best_by_enumeration(known, cost)
    assert lower_bound(known, cost) <= best
    for line in supporting_lines(cost, sum(known.sizes)):
        assert block_bound(known, line, 0, best + 1) <= best
        if all(line):
            with patch("planner.families.caramel.grid_bounds.GRID", grid):
                blocks = _Blocks(known, line)
            assert not any(blocks.refuted(best, by_heads=one) for one in (True, False))


@settings(max_examples=700)
@given(nested_windows(7), st.integers(0, 80), st.integers(1, 9))
def test_a_chain_meets_the_bound_up_to_rounding(known: Windows, startup: int, rate: int) -> None:
    cost, line = AffineCost(startup, Fraction(rate)), (Fraction(startup), Fraction(rate))
    (nested,) = outer_nesting(known)
    targets = Targets(nested, [line])
    least, openings = targets.least(known.compute_ns)
    pricer = LoadPricer(known, cost)
    loads = targets.cut_loads(least, openings)
    # Each transfer may lack part of a byte that then travels elsewhere.
    assert least <= pricer.iteration_ns(loads) <= least + rate * (len(openings) * 2 + 1)
    assert least == lower_bound(known, cost)
    if startup:
        (reached, _), blocks = targets.least(0), _Blocks(known, line)
        for one in (True, False):
            assert not blocks.refuted(reached, by_heads=one)
            assert blocks.refuted(reached - 1, by_heads=one)


@settings(max_examples=300)
@given(windows_strategy(6), st.integers(0, 40), st.integers(1, 9))
def test_nested_windows_contain_and_are_contained_and_carry_every_byte_once(
    known: Windows, startup: int, rate: int
) -> None:
    for nests, sign in ((outer_nesting(known), 1), (inner_nesting(known), -1)):
        for nested in nests:
            targets = Targets(nested, [(Fraction(startup), Fraction(rate))])
            least, openings = targets.least(known.compute_ns)
            assert is_complete(known, targets.cut_loads(least, openings, 2))
            assert is_complete(known, targets.whole_loads(openings))
            assert list(nested.heads) == sorted(nested.heads, reverse=True)
            assert list(nested.tails) == sorted(nested.tails, reverse=True)
            for members, head, tail in zip(nested.members, nested.heads, nested.tails, strict=True):
                assert all(sign * (known.heads[j] - head) >= 0 for j in members)
                assert all(sign * (known.tails[j] - tail) >= 0 for j in members)


@settings(max_examples=300)
@given(costs, st.integers(1, 200))
def test_no_size_undercuts_a_supporting_line(cost: TransferCost, largest: int) -> None:
    lines, sizes = supporting_lines(cost, largest), range(1, largest + 1)
    assert lines
    for startup, rate in lines:
        assert min(startup, rate) >= 0
        assert all(startup + rate * size <= unrounded(cost, size) for size in sizes)
    if isinstance(cost, AffineCost) and largest > 1:
        assert (Fraction(cost.startup_ns), cost.ns_per_byte) in lines


def test_blocks_see_more_than_widened_windows() -> None:
    """The third gradient is ready late and read last: to nest, the others' windows are widened."""
    known = Windows((10, 10, 20, 40), (80, 10, 70, 60), (90, 100, 0, 80), 100, 100)
    cost = AffineCost(30, Fraction(1))
    low, best = lower_bound(known, cost), best_by_enumeration(known, cost)
    assert low < tighter_bound(known, cost, low, best) <= best


small = st.integers(0, 12)
job = st.tuples(times, times, times)
jobs = st.lists(st.tuples(small, small, small) | job, min_size=1, max_size=7)
huge_jobs = st.lists(st.tuples(huge, huge, huge), min_size=1, max_size=5)


def lasting(order: Sequence[int], *times: Sequence[int]) -> int:
    return delayed_makespan(NOMINAL, [Step(*(own[job] for own in times)) for job in order], 0)


@settings(max_examples=200)
@given(jobs | huge_jobs)
def test_as_good_as_every_order(rows: list[tuple[int, int, int]]) -> None:
    heads, durations, tails = zip(*rows, strict=True)
    found = carlier(heads, durations, tails, NEVER)
    assert sorted(found.order) == list(range(len(rows)))
    assert found.value == lasting(found.order, heads, durations, tails)
    assert found.value == found.lower_bound == best_sequence(heads, durations, tails)
    assert not found.timed_out


@pytest.mark.parametrize("seed", range(5))
def test_hundreds_of_jobs_to_the_end(seed: int) -> None:
    """Carlier's own test: heads and tails from a range of count · K, durations up to 50."""
    random, count = Random(seed), 200
    spread = count * random.randint(1, 25)
    heads, durations, tails = (
        [random.randint(low, high) for _ in range(count)]
        for low, high in ((0, spread), (1, 50), (0, spread))
    )
    found, first = carlier(heads, durations, tails, Deadline(20)), schrage(heads, durations, tails)
    assert not found.timed_out
    assert found.lower_bound == found.value <= lasting(first, heads, durations, tails)
    assert found.value >= preemptive(zip(heads, durations, tails, strict=True))


def test_without_time_there_is_an_order_and_a_bound() -> None:
    """Schrage runs job 0 first, and job 1, which all wait for, comes one step later."""
    heads, durations, tails = (0, 1, 2), (10, 5, 1), (0, 20, 3)
    found = carlier(heads, durations, tails, Deadline(0))
    assert found.timed_out
    assert sorted(found.order) == [0, 1, 2]
    assert found.lower_bound <= best_sequence(heads, durations, tails) < found.value
    assert carlier(heads, durations, tails, NEVER).value == 26


@given(st.lists(job, min_size=1, max_size=7), st.integers(1, 5))
def test_the_worst_set_of_jobs_decides(rows: list[tuple[int, int, int]], parts: int) -> None:
    heads, durations, tails = zip(*rows, strict=True)
    assert preemptive([]) == 0
    assert preemptive(rows) == preemptive_value(heads, durations, tails)
    rational = [Fraction(duration, parts) for duration in durations]
    jobs = zip(heads, rational, tails, strict=True)
    assert preemptive(jobs) == preemptive_value(heads, rational, tails)


@given(testing.costs(), st.integers(1, 150))
def test_the_least_rate_is_that_of_some_size_or_less(cost: TransferCost, most: int) -> None:
    rates = (unrounded(cost, size) / size for size in range(1, most + 1))
    assert least_rate(cost, most) == min(rates)


def test_all_in_one_transfer_without_other_work_meets_the_bound() -> None:
    one = Windows(sizes=(3, 4), heads=(5, 5), tails=(2, 2), backward_ns=5, forward_ns=2)
    cost = AffineCost(10, Fraction(1, 2))
    assert preemptive_bound(one, cost) == price(one, cost, [[(0, 3), (1, 4)]]) == 21


# ---
# Concave costs, against plans that are known to be the best.


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
        loads = concave_loads(nested, grid_cost(nested, cost))
        assert LoadPricer(one, cost).iteration_ns(loads) == 16


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
