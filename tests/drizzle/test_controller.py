"""The online rule: what it promises where the overhead falls as groups grow."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil, log
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import InvalidInputError
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
from planner.model.validation import MAX_VALUE
from tests.drizzle.drizzle_strategies import problems

MOST = 80


@st.composite
def bands(draw: st.DrawFn) -> Band:
    low, high = sorted(draw(st.tuples(*[st.builds(Fraction, st.integers(0, 49), st.just(50))] * 2)))
    factor = Fraction(draw(st.integers(11, 40)), 10)
    return Band(low, high, factor, draw(st.integers(1, 5)), draw(st.integers(1, MOST)))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Problem, Band]:
    """Draw a problem and a band with at least one size in it."""
    problem = draw(problems())
    problem = replace(problem, compute_ns=problem.compute_ns + 1)
    most = draw(st.integers(1, MOST))
    first = draw(st.integers(1, most))
    last = draw(st.integers(first, min(most, first + 8)))
    low, high = (evaluate(problem, Plan(size)).overhead for size in (last, first))
    factor = Fraction(draw(st.integers(11, 40)), 10)
    return problem, Band(low, high, factor, draw(st.integers(1, 5)), most)


def shares_of(problem: Problem) -> Callable[[int], Fraction]:
    return cache(lambda size: evaluate(problem, Plan(size)).overhead)


def run(band: Band, share: Callable[[int], Fraction], start: int, groups: int) -> list[int]:
    state, sizes = State(start), [start]
    for _ in range(groups):
        state = adjusted(band, state, share(state.group_size))
        sizes.append(state.group_size)
    return sizes


def inside(band: Band, share: Callable[[int], Fraction]) -> list[int]:
    return [g for g in range(1, band.max_group_size + 1) if band.low <= share(g) <= band.high]


@settings(max_examples=300)
@given(jobs(), st.data())
def test_it_settles_in_a_wide_enough_band_in_time_and_stays(
    job: tuple[Problem, Band], data: st.DataObject
) -> None:
    problem, band = job
    share = shares_of(problem)
    sizes = inside(band, share)
    assume(len(sizes) >= band.step)
    start = data.draw(st.integers(1, band.max_group_size))
    first, last = sizes[0], sizes[-1]
    if start < first:
        promised = ceil(log(first / start) / log(band.factor) + 1e-9)
        landing = ceil(band.factor * (first - 1))
        promised += max(0, ceil(Fraction(landing - last, band.step)))
    else:
        promised = max(0, ceil(Fraction(start - last, band.step)))
    run_of_sizes = run(band, share, start, promised + 5)
    settled = run_of_sizes[promised:]
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


@pytest.mark.slow
@settings(max_examples=200)
@given(jobs(), st.data())
def test_without_room_in_the_band_it_stays_near_it(
    job: tuple[Problem, Band], data: st.DataObject
) -> None:
    problem, band = job
    share = shares_of(problem)
    assume(len(inside(band, share)) < band.step)
    everything = range(1, band.max_group_size + 1)
    first = min(size for size in everything if share(size) <= band.high)
    last = max(size for size in everything if share(size) >= band.low)
    start = data.draw(st.sampled_from(everything))
    for size in run(band, share, start, MOST + 20)[MOST:]:
        assert first - band.step <= size <= max(last, ceil(band.factor * (first - 1)))


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


def test_a_simulation_has_a_first_group() -> None:
    job = Problem(compute_ns=10**9, tasks=256, task_ns=333_333, max_overhead=0.01)
    with pytest.raises(InvalidInputError, match="groups: expected an integer >= 1, got 0"):
        group_sizes(job, Band(Fraction(0), Fraction(1, 2)), 0)


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ((0, True), "high", f"expected a number from 0 to {2**62}, got true"),
        ((-1, 0), "low", f"expected a number from 0 to {2**62}, got -1"),
        ((1, 1), "low", "expected a number >= 0 and < 1, got 1"),
        ((Fraction(1, 2), 0), "high", "expected a number >= low and < 1, got 0"),
        ((0, 1), "high", "expected a number >= low and < 1, got 1"),
        ((0, 0, 1), "factor", "expected a number > 1, got 1"),
        ((0, 0, 2, 0), "step", "expected an integer >= 1, got 0"),
        ((0, 0, 2, 1, 0), "max_group_size", "expected an integer >= 1, got 0"),
    ],
)
def test_what_is_no_band(fields: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Band(*fields)
    assert (caught.value.path, caught.value.message) == (path, message)


def test_what_is_no_state_and_no_share() -> None:
    with pytest.raises(InvalidInputError, match="group_size: expected an integer >= 1, got 0"):
        State(0)
    for bad, most in ((-1, MAX_VALUE), (Fraction(3, 2), 1)):
        wanted = f"overhead: expected a number from 0 to {most}"
        with pytest.raises(InvalidInputError, match=wanted):
            adjusted(Band(Fraction(0), Fraction(1, 2)), State(), Fraction(bad))
