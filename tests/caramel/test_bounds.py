"""Bounds that no plan beats, met by chains; Carlier's branch and bound, Jackson's schedule."""

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.caramel.bounds import Targets, inner_nesting, lower_bound, outer_nesting
from planner.families.caramel.carlier import carlier, schrage
from planner.families.caramel.grid_bounds import _Blocks, block_bound, tighter_bound
from planner.families.caramel.one_machine import preemptive_bound
from planner.families.caramel.pricing import LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import AffineCost, TransferCost, least_rate, supporting_lines
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
    for nests, inside in ((outer_nesting(known), False), (inner_nesting(known), True)):
        for nested in nests:
            targets = Targets(nested, [(Fraction(startup), Fraction(rate))])
            least, openings = targets.least(known.compute_ns)
            assert is_complete(known, targets.cut_loads(least, openings, 2))
            assert is_complete(known, targets.whole_loads(openings))
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
    found = carlier(heads, durations, tails, Deadline(20))
    assert not found.timed_out
    assert found.lower_bound == found.value
    assert found.value >= preemptive(zip(heads, durations, tails, strict=True))
    assert found.value <= lasting(schrage(heads, durations, tails), heads, durations, tails)


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
