"""Fitted constants against SciPy's non-negative least squares; what rows cannot tell apart."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from planner import InvalidInputError
from planner.families.drizzle import Calibration, Measurement, calibrate
from planner.families.drizzle.calibration import CONSTANTS
from planner.model.validation import MAX_VALUE

rows = st.builds(Measurement, st.integers(1, 40), st.integers(1, 8), st.integers(1, 500))


def scale_of(one: Measurement) -> tuple[Fraction, Fraction, Fraction]:
    """Return what the constants are multiplied by for the relative prediction of a row."""
    group = Fraction(1, one.group_size * one.overhead_ns)
    return group, one.tasks * group, Fraction(one.tasks, one.overhead_ns)


def loss(constants: Any, measured: list[Measurement]) -> float:
    return float(
        sum(
            (float(sum(x * a for x, a in zip(constants, scale_of(one), strict=True))) - 1) ** 2
            for one in measured
        )
    )


def constants_of(found: Calibration) -> list[Fraction]:
    return [found.group_ns, found.task_ns, found.constant_task_ns]


@pytest.mark.parametrize("given", [None, 3, {1: 2}])
def test_what_is_no_list_of_measurements(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="measurements: expected an array") as caught:
        calibrate(given)
    assert caught.value.path == "measurements"


@settings(max_examples=300)
@given(st.lists(rows, min_size=1, max_size=12))
def test_no_other_constants_fit_better(measured: list[Measurement]) -> None:
    found = calibrate(measured)
    assert min(constants_of(found)) >= 0
    matrix = np.array([[float(a) for a in scale_of(one)] for one in measured])
    widths = np.linalg.norm(matrix, axis=0)
    _, residual = nnls(matrix / widths, np.ones(len(measured)))
    assert loss(constants_of(found), measured) == pytest.approx(residual**2, rel=1e-6, abs=1e-9)


@settings(max_examples=200)
@given(st.lists(rows, min_size=1, max_size=8))
def test_errors_are_those_of_the_model(measured: list[Measurement]) -> None:
    found = calibrate(measured)
    for error, one in zip(found.errors, measured, strict=True):
        predicted = sum(x * a for x, a in zip(constants_of(found), scale_of(one), strict=True))
        assert error == predicted - 1


@settings(max_examples=200)
@given(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 8)), min_size=1, max_size=8),
)
def test_constants_that_made_the_overheads_are_found(
    true: tuple[int, int, int], shapes: list[tuple[int, int]]
) -> None:
    assume(any(true))
    group, task, always = (840 * one for one in true)  # whole nanoseconds with groups up to 8
    measured = [
        Measurement(m, g, overhead)
        for m, g in shapes
        if (overhead := (group + task * m) // g + always * m)
    ]
    assume(measured)
    found = calibrate(measured)
    assert [float(error) for error in found.errors] == pytest.approx([0] * len(measured), abs=1e-9)
    if not found.confounded:
        expected = pytest.approx([group, task, always], rel=1e-6)
        assert [float(one) for one in constants_of(found)] == expected


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


@pytest.mark.parametrize(
    ("shapes", "confounded"),
    [
        ([(10, 1), (20, 1), (30, 1)], ("task_ns", "constant_task_ns")),
        ([(10, 1), (10, 2), (10, 5)], ("group_ns", "task_ns")),
        ([(10, 4), (20, 4)], ("task_ns", "constant_task_ns")),
        ([(10, 1), (10, 1)], CONSTANTS),
        ([(10, 1), (20, 2), (30, 1)], ()),
    ],
)
def test_what_rows_cannot_tell_apart(
    shapes: list[tuple[int, int]], confounded: tuple[str, ...]
) -> None:
    found = calibrate([Measurement(m, g, 100 + m) for m, g in shapes])
    assert found.confounded == confounded


def test_of_equal_fits_the_one_with_fewest_constants() -> None:
    """With groups of one d1 and d2 are one number: the time of a task is the group's."""
    found = calibrate([Measurement(m, 1, 7 * m) for m in (10, 20, 30)])
    assert constants_of(found) == [0, 7, 0]
    assert calibrate([Measurement(300, 1, 600)]).task_ns == 2


def test_a_constant_below_nothing_is_nothing() -> None:
    """Overheads that shrink with more tasks fit no task_ns."""
    found = calibrate([Measurement(10, 1, 100), Measurement(20, 1, 90), Measurement(20, 2, 46)])
    assert found.task_ns == found.constant_task_ns == 0
    assert found.group_ns > 0


@settings(max_examples=100)
@given(st.lists(rows, min_size=1, max_size=8), st.integers(2, 10**9), st.randoms())
def test_units_and_order_do_not_matter(
    measured: list[Measurement], factor: int, random: Any
) -> None:
    found = [float(one) for one in constants_of(calibrate(measured))]
    slower = [Measurement(one.tasks, one.group_size, one.overhead_ns * factor) for one in measured]
    expected = pytest.approx([factor * one for one in found], rel=1e-6, abs=1e-6 * factor)
    assert [float(one) for one in constants_of(calibrate(slower))] == expected
    random.shuffle(measured)
    expected = pytest.approx(found, rel=1e-6, abs=1e-6)
    assert [float(one) for one in constants_of(calibrate(measured))] == expected


def test_the_edge_of_the_range() -> None:
    found = calibrate([Measurement(1, MAX_VALUE, 1), Measurement(MAX_VALUE, 1, MAX_VALUE)])
    assert all(abs(error) <= 1 for error in found.errors)


@pytest.mark.parametrize(
    ("measured", "path", "message"),
    [
        ([], "measurements", "expected at least one element, got an empty array"),
        ([3], "measurements[0]", "expected a Measurement, got 3"),
        ([Measurement(0, 1, 1)], "measurements[0].tasks", "expected an integer >= 1, got 0"),
        (
            [Measurement(1, 1, 1), Measurement(1, 0, 1)],
            "measurements[1].group_size",
            "expected an integer >= 1, got 0",
        ),
        ([Measurement(1, 1, 0)], "measurements[0].overhead_ns", "expected an integer >= 1, got 0"),
    ],
)
def test_what_are_no_measurements(measured: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        calibrate(measured)
    assert (caught.value.path, caught.value.message) == (path, message)
