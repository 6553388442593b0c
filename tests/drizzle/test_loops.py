"""Groups by the online rule, fitted constants, and loops found in a log.

Fitted constants are held against SciPy's least squares, loops against trying everything.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, product
from math import ceil, log

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from planner.families.drizzle import Measurement, Plan, Problem, calibrate, evaluate, solve
from planner.families.drizzle.calibration import CONSTANTS
from planner.families.drizzle.evaluation import Band, State, adjusted, group_sizes
from planner.families.drizzle.loops import (
    Job,
    Loop,
    Round,
    StageShape,
    in_words,
    loops_of,
    measurements_of,
    problem_of,
)
from planner.model.validation import MAX_VALUE
from planner.testing import problems
from tests.present import present

# The online rule: what it promises where the overhead falls as groups grow.

MOST = 80

factors = st.integers(11, 40).map(lambda tenths: Fraction(tenths, 10))


@st.composite
def bands(draw: st.DrawFn) -> Band:
    low, high = sorted(draw(st.tuples(*[st.integers(0, 49).map(lambda it: Fraction(it, 50))] * 2)))
    return Band(low, high, draw(factors), draw(st.integers(1, 5)), draw(st.integers(1, MOST)))


@st.composite
def jobs_and_bands(draw: st.DrawFn) -> tuple[Problem, Band]:
    """Draw a problem and a band with at least one size in it."""
    problem = draw(problems("drizzle"))
    problem = replace(problem, compute_ns=problem.compute_ns + 1)
    most = draw(st.integers(1, MOST))
    first = draw(st.integers(1, most))
    last = draw(st.integers(first, min(most, first + 8)))
    low, high = (share(problem, size) for size in (last, first))
    return problem, Band(low, high, draw(factors), draw(st.integers(1, 5)), most)


def share(problem: Problem, size: int) -> Fraction:
    return evaluate(problem, Plan(size)).overhead


@pytest.mark.slow
@settings(max_examples=500)
@given(jobs_and_bands(), st.data())
def test_it_settles_in_a_wide_enough_band_in_time_and_else_stays_near_it(
    job: tuple[Problem, Band], data: st.DataObject
) -> None:
    problem, band = job
    everything = range(1, band.max_group_size + 1)
    start = data.draw(st.sampled_from(everything))
    shares = {size: share(problem, size) for size in everything}
    first = min(size for size in everything if shares[size] <= band.high)
    last = max(size for size in everything if shares[size] >= band.low)
    landing = ceil(band.factor * (first - 1))
    if last - first + 1 < band.step:
        for size in group_sizes(problem, band, MOST + 21, State(start))[MOST:]:
            assert first - band.step <= size <= max(last, landing)
        return
    if start < first:
        promised = ceil(log(first / start) / log(band.factor) + 1e-9)
        promised += max(0, ceil(Fraction(landing - last, band.step)))
    else:
        promised = max(0, ceil(Fraction(start - last, band.step)))
    settled = group_sizes(problem, band, promised + 6, State(start))[promised:]
    assert set(settled) == {settled[0]}
    assert first <= settled[0] <= last


@settings(max_examples=200)
@given(bands(), st.integers(1, MOST), st.builds(Fraction, st.integers(0, 100), st.just(100)))
@example(Band(Fraction(0), Fraction(1, 2), Fraction(3, 2)), 3, Fraction(1))  # to 5, rounded up
def test_one_step(band: Band, size: int, overhead: Fraction) -> None:
    if overhead > band.high:
        expected = ceil(size * band.factor)
    else:
        expected = size - band.step * (overhead < band.low)
    after = adjusted(band, State(size), overhead).group_size
    assert after == min(max(expected, 1), band.max_group_size)


@settings(max_examples=200)
@given(problems("drizzle"))
def test_doubling_ends_at_less_than_twice_the_planned_size(problem: Problem) -> None:
    plan = solve(problem).plan
    assume(plan)
    high = Fraction(problem.max_overhead)
    sizes = group_sizes(problem, Band(high / 2, high), 64)
    planned = present(plan).group_size
    assert planned <= sizes[-1] < max(2 * planned, 2)
    assert sizes[(planned - 1).bit_length()] == sizes[-1]


# Constants fitted to measurements.

rows = st.builds(Measurement, st.integers(1, 40), st.integers(1, 8), st.integers(1, 500))


def scale_of(one: Measurement) -> tuple[Fraction, Fraction, Fraction]:
    """Return the factors of the constants in a row's prediction over its measured time."""
    group = Fraction(1, one.group_size * one.overhead_ns)
    return group, one.tasks * group, Fraction(one.tasks, one.overhead_ns)


@settings(max_examples=300)
@given(st.lists(rows, min_size=1, max_size=12))
def test_no_other_constants_fit_better_and_errors_are_those_of_the_model(
    measured: list[Measurement],
) -> None:
    found = calibrate(measured)
    known = [getattr(found, name) for name in CONSTANTS]
    assert min(known) >= 0
    matrix = np.array([[float(a) for a in scale_of(one)] for one in measured])
    widths = np.linalg.norm(matrix, axis=0)
    _, residual = nnls(matrix / widths, np.ones(len(measured)))
    errors = [sum(x * a for x, a in zip(known, scale_of(one), strict=True)) - 1 for one in measured]
    assert list(found.errors) == errors
    loss = float(sum(error**2 for error in errors))
    assert loss == pytest.approx(residual**2, rel=1e-6, abs=1e-9)


@settings(max_examples=200)
@given(st.lists(rows, min_size=1, max_size=6))
def test_confounded_constants_can_be_traded_for_one_another(measured: list[Measurement]) -> None:
    """Some direction moves a confounded constant and no prediction; none moves another."""
    found = calibrate(measured)
    shapes = np.array([[1.0, one.tasks, one.tasks * one.group_size] for one in measured])
    widths = np.linalg.norm(shapes, axis=0)
    _, sizes, directions = np.linalg.svd(shapes / widths)
    known = int((sizes > 1e-9 * sizes[0]).sum())
    free = directions[known:] / widths
    for column, name in enumerate(CONSTANTS):
        moves = bool(len(free)) and float(np.abs(free[:, column] * widths[column]).max()) > 1e-7
        assert (name in found.confounded) == moves


def test_fits_by_hand() -> None:
    # With groups of one d1 and d2 are one number: the time of a task is the group's.
    equal = calibrate([Measurement(m, 1, 7 * m) for m in (10, 20, 30)])
    assert [equal.group_ns, equal.task_ns, equal.constant_task_ns] == [0, 7, 0]
    assert calibrate([Measurement(300, 1, 600)]).task_ns == 2
    # Overheads that shrink with more tasks fit no task_ns.
    falling = calibrate([Measurement(10, 1, 100), Measurement(20, 1, 90), Measurement(20, 2, 46)])
    assert falling.task_ns == falling.constant_task_ns == 0
    assert falling.group_ns > 0
    edge = calibrate([Measurement(1, MAX_VALUE, 1), Measurement(MAX_VALUE, 1, MAX_VALUE)])
    assert all(abs(error) <= 1 for error in edge.errors)


# ---
# Which jobs of a log repeat, and what their rounds say.


def ran(number: int, kind: str) -> Job:
    start = 100 * number
    return Job(number, start, start + 10, 0, (StageShape(kind, 2, ()),), 6, True, 0)


def stretches(loops: tuple[Loop, ...]) -> list[tuple[int, int, int]]:
    """Return where each loop starts, its pattern and its rounds, the last one included."""
    found = [(loop.jobs[0].number, len(loop.jobs), len(loop.rounds)) for loop in loops]
    return [(last - jobs * rounds, jobs, rounds + 1) for last, jobs, rounds in found]


def tried(kinds: str) -> list[tuple[int, int, int]]:
    """Return the same by trying every pattern at every place."""
    found, start = [], 0
    while start < len(kinds):
        choices = [
            (pattern * rounds, -pattern)
            for pattern, rounds in product(range(1, len(kinds) + 1), range(3, len(kinds) + 1))
            if pattern * rounds <= len(kinds) - start
            and kinds[start : start + pattern] * rounds == kinds[start : start + pattern * rounds]
        ]
        if not choices:
            start += 1
            continue
        length, pattern = max(choices)
        found.append((start, -pattern, length // -pattern))
        start += length
    return found


@settings(max_examples=300)
@given(st.text("ab", max_size=14) | st.text("abc", max_size=20))
@example("aabaabaabx")
@example("aaabaaabaaab")
@example("aaabbb")
@example("abxyxyxyc")
@example("aaaabab")
def test_loops_are_those_of_trying_everything(kinds: str) -> None:
    jobs = [ran(number, kind) for number, kind in enumerate(kinds)]
    assert stretches(loops_of(jobs)) == tried(kinds)


def test_jobs_that_ran_nothing_are_no_part_of_a_loop() -> None:
    skipped = Job(9, 150, 160, 0, (), 0, True, 0)
    assert len(loops_of([ran(0, "a"), skipped, ran(1, "a"), ran(2, "a")])) == 1


@given(
    st.integers(1, 50),
    st.integers(0, 400),
    st.integers(0, 400),
    st.lists(st.integers(1, 12), min_size=4, max_size=8).filter(lambda sizes: len(set(sizes)) > 1),
)
def test_constants_of_groups_are_found_again(
    tasks: int, once: int, compute: int, sizes: list[int]
) -> None:
    """A log of groups that last what the model says leads to a problem that says the same."""
    compute += 100
    walls = [1000 * (once + compute * size) for size in sizes]
    starts = [0, *accumulate(walls)]
    shape = (StageShape("group", tasks, ()),)
    jobs = [
        Job(place, start, start + 1, size, shape, 1000 * compute * size, True, 0)
        for place, (start, size) in enumerate(zip(starts, [*sizes, 1], strict=True))
    ]
    loops = loops_of(jobs)
    problem, fitted = problem_of(loops, max_overhead=Fraction(1, 20), max_group_ns=None)
    assert problem.compute_ns == 1000 * compute
    for row, error in zip(measurements_of(loops), fitted.errors, strict=True):
        assert abs(error * row.overhead_ns) < 2  # rounded to whole nanoseconds
        predicted = evaluate(problem, Plan(row.group_size)).overhead_time
        assert abs(predicted - row.overhead_ns) < 2


def rounds(wall: int, compute: int, between: int, size: int = 1) -> Loop:
    row = Round(size, wall * size, compute * size, between * size, disturbed=False)
    return Loop((ran(0, "a"),), (row, row), grouped=size > 1, overlapping=False)


def test_what_is_said_is_what_was_measured_and_planned() -> None:
    loop, few = rounds(1000, 770, 0), rounds(1000, 990, 0)
    problem, _ = problem_of([loop], max_overhead=Fraction(1, 20), max_group_ns=None)
    assert present(solve(problem).plan).group_size == 6
    spends = "your driver spends 23 % of each iteration scheduling; groups of 6 iterations "
    for measured, size, said in (
        (loop, 6, f"{spends}bring it below 5 %"),
        (few, None, ", which is below 5 % already"),
        (rounds(1000, 770, 200), 6, "20 % between jobs"),
        (loop, None, "no group within the limits"),
        (few, 1, "single iterations keep it below 5 %"),
        (rounds(1000, 900, 0, 4), 9, "in groups of 4"),
    ):
        assert said in in_words(measured, size, Fraction(1, 20))
