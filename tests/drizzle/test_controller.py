"""The online rule: what it promises where the overhead falls as groups grow."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil, log

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.drizzle import (
    Band,
    Plan,
    Problem,
    State,
    adjusted,
    evaluate,
    group_sizes,
    solve,
)
from tests.drizzle.drizzle_strategies import problems

MOST = 80

factors = st.integers(11, 40).map(lambda tenths: Fraction(tenths, 10))


@st.composite
def bands(draw: st.DrawFn) -> Band:
    low, high = sorted(draw(st.tuples(*[st.integers(0, 49).map(lambda it: Fraction(it, 50))] * 2)))
    return Band(low, high, draw(factors), draw(st.integers(1, 5)), draw(st.integers(1, MOST)))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Problem, Band]:
    """Draw a problem and a band with at least one size in it."""
    problem = draw(problems())
    problem = replace(problem, compute_ns=problem.compute_ns + 1)
    most = draw(st.integers(1, MOST))
    first = draw(st.integers(1, most))
    last = draw(st.integers(first, min(most, first + 8)))
    low, high = (evaluate(problem, Plan(size)).overhead for size in (last, first))
    return problem, Band(low, high, draw(factors), draw(st.integers(1, 5)), most)


def shares_of(problem: Problem) -> Callable[[int], Fraction]:
    return cache(lambda size: evaluate(problem, Plan(size)).overhead)


def run(band: Band, share: Callable[[int], Fraction], start: int, groups: int) -> list[int]:
    state, sizes = State(start), [start]
    for _ in range(groups):
        state = adjusted(band, state, share(state.group_size))
        sizes.append(state.group_size)
    return sizes


@pytest.mark.slow
@settings(max_examples=500)
@given(jobs(), st.data())
def test_it_settles_in_a_wide_enough_band_in_time_and_else_stays_near_it(
    job: tuple[Problem, Band], data: st.DataObject
) -> None:
    problem, band = job
    share = shares_of(problem)
    everything = range(1, band.max_group_size + 1)
    start = data.draw(st.sampled_from(everything))
    first = min(size for size in everything if share(size) <= band.high)
    last = max(size for size in everything if share(size) >= band.low)
    landing = ceil(band.factor * (first - 1))
    if last - first + 1 < band.step:
        for size in run(band, share, start, MOST + 20)[MOST:]:
            assert first - band.step <= size <= max(last, landing)
        return
    if start < first:
        promised = ceil(log(first / start) / log(band.factor) + 1e-9)
        promised += max(0, ceil(Fraction(landing - last, band.step)))
    else:
        promised = max(0, ceil(Fraction(start - last, band.step)))
    settled = run(band, share, start, promised + 5)[promised:]
    assert set(settled) == {settled[0]}
    assert first <= settled[0] <= last


@settings(max_examples=150)
@given(problems(), bands(), st.data())
def test_it_settles_at_the_end_that_is_nearest_to_a_band_out_of_reach(
    problem: Problem, band: Band, data: st.DataObject
) -> None:
    share = shares_of(problem)
    most = band.max_group_size
    too_high, too_low = share(most) > band.high, share(1) < band.low
    assume(too_high or too_low)
    start = data.draw(st.integers(1, most))
    settled = run(band, share, start, MOST + 50)[-20:]
    assert set(settled) == {most if too_high else 1}


@settings(max_examples=200)
@given(bands(), st.integers(1, MOST), st.builds(Fraction, st.integers(0, 100), st.just(100)))
def test_one_step(band: Band, size: int, overhead: Fraction) -> None:
    after = adjusted(band, State(size), overhead).group_size
    assert 1 <= after <= band.max_group_size
    if overhead > band.high:
        assert after in (ceil(size * band.factor), band.max_group_size)
    elif overhead < band.low:
        assert after in (size - band.step, 1, band.max_group_size)
    else:
        assert after == min(size, band.max_group_size)


@settings(max_examples=100)
@given(problems(), bands(), st.integers(1, MOST), st.integers(1, 20))
def test_a_simulation_adjusts_after_each_group(
    problem: Problem, band: Band, start: int, groups: int
) -> None:
    sizes = group_sizes(problem, band, groups, State(start))
    assert list(sizes) == run(band, shares_of(problem), start, groups - 1)
    assert group_sizes(problem, band, groups) == group_sizes(problem, band, groups, State(1))


@settings(max_examples=200)
@given(problems())
def test_doubling_ends_at_less_than_twice_the_planned_size(problem: Problem) -> None:
    plan = solve(problem).plan
    assume(plan)
    assert plan is not None
    high = Fraction(problem.max_overhead)
    sizes = group_sizes(problem, Band(high / 2, high), 64)
    planned = plan.group_size
    assert planned <= sizes[-1] < max(2 * planned, 2)
    assert sizes[(planned - 1).bit_length()] == sizes[-1]
