"""Fitted constants against SciPy's non-negative least squares; what rows cannot tell apart."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
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


def test_the_edge_of_the_range() -> None:
    found = calibrate([Measurement(1, MAX_VALUE, 1), Measurement(MAX_VALUE, 1, MAX_VALUE)])
    assert all(abs(error) <= 1 for error in found.errors)


@pytest.mark.parametrize(
    ("measured", "path", "message"),
    [
        (None, "measurements", "expected an array, got null"),
        ({1: 2}, "measurements", "expected an array, got an object"),
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
