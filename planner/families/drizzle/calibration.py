"""Fit of the scheduler's constants to measured overheads.

Problem: for measured (m, g, o), find d0, d1, d2 >= 0 such that (d0 + d1·m)/g + d2·m is near o.

Method: least squares on relative errors, for each set of constants that may be above 0. Some
optimum is the plain least-squares solution on linearly independent columns (Carathéodory).

Guarantee: the least sum of squares, but for rounding. Among equal fits: as few constants as
possible, task_ns before group_ns before constant_task_ns. The constants that cannot be told apart
are named.
Complexity: O(rows).
Source: group scheduling in Venkataraman, Ding, Ermolin; the fit is own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from planner.model.errors import InvalidInputError
from planner.model.validation import integer, shown

CONSTANTS = ("group_ns", "task_ns", "constant_task_ns")

_PREFERRED = (1, 0, 2)
_SETS = [columns for size in (1, 2, 3) for columns in combinations(_PREFERRED, size)]
_SAME = 1e-9
"""Relative difference within which errors of fits, and directions of columns, are the same."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured overhead.

    Attributes
    ----------
    tasks : int
        Tasks m of an iteration.
    group_size : int
        Iterations g scheduled at once.
    overhead_ns : int
        Scheduling time of an iteration, in nanoseconds, at least 1.
    """

    tasks: int
    group_size: int
    overhead_ns: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants, and how well the measurements determine them.

    Attributes
    ----------
    group_ns, task_ns, constant_task_ns : Fraction
        The constants, in nanoseconds.
    errors : tuple of Fraction
        Relative error of the fit at each measurement; positive if the fit is too high.
    confounded : tuple of str
        Constants that the measurements cannot tell apart.
    """

    group_ns: Fraction
    task_ns: Fraction
    constant_task_ns: Fraction
    errors: tuple[Fraction, ...]
    confounded: tuple[str, ...]


def calibrate(measurements: Sequence[Measurement]) -> Calibration:
    """Fit the constants of the scheduler to measured overheads.

    Parameters
    ----------
    measurements : sequence of Measurement
        At least one.

    Raises
    ------
    InvalidInputError
        If there is no measurement, or one is invalid, with its path.
    """
    untyped: object = measurements
    if not isinstance(untyped, Sequence):
        raise InvalidInputError("measurements", f"expected an array, got {shown(untyped)}")
    for place, measurement in enumerate(measurements):
        _check(measurement, f"measurements[{place}]")
    if not measurements:
        raise InvalidInputError("measurements", "expected at least one element, got an empty array")
    fitted, confounded = _fitted(measurements)
    group, task, always = fitted
    errors = tuple(_error(fitted, measurement) for measurement in measurements)
    return Calibration(group, task, always, errors, confounded)


def _fitted(measurements: Sequence[Measurement]) -> tuple[list[Fraction], tuple[str, ...]]:
    """Return the constants with twelve digits, and those that cannot be told apart."""
    import numpy as np

    shapes = np.array([[1.0, row.tasks, row.tasks * row.group_size] for row in measurements])
    spent = np.array([float(row.overhead_ns * row.group_size) for row in measurements])
    effects = shapes / spent[:, None]
    unit = effects.max(axis=0)
    effects /= unit
    count = len(measurements)
    best, least = np.zeros(len(CONSTANTS)), float(count)
    for columns in _SETS:
        some = effects[:, columns]
        values, _, rank, _ = np.linalg.lstsq(some, np.ones(count), rcond=_SAME)
        error = float(np.square(some @ values - 1).sum())
        better = error < least * (1 - _SAME) - count * _SAME**2
        if rank == len(columns) and values.min() >= 0 and better:
            best, least = np.zeros(len(CONSTANTS)), error
            best[list(columns)] = values
    shapes /= shapes.max(axis=0)
    ranks = [
        np.linalg.matrix_rank(columns, _SAME * np.linalg.norm(shapes, 2))
        for columns in (shapes, *(np.delete(shapes, column, axis=1) for column in range(3)))
    ]
    confounded = tuple(
        name for name, rank in zip(CONSTANTS, ranks[1:], strict=True) if rank == ranks[0]
    )
    return [Fraction(f"{value:.12g}") for value in (best / unit).tolist()], confounded


def _check(measurement: object, path: str) -> None:
    if not isinstance(measurement, Measurement):
        raise InvalidInputError(path, f"expected a Measurement, got {shown(measurement)}")
    for name in ("tasks", "group_size", "overhead_ns"):
        integer(getattr(measurement, name), f"{path}.{name}", minimum=1)


def _error(constants: list[Fraction], measurement: Measurement) -> Fraction:
    """Return the relative error of a prediction; positive if it is too high."""
    group, task, always = constants
    tasks = measurement.tasks
    predicted = (group + task * tasks) / measurement.group_size + always * tasks
    return predicted / measurement.overhead_ns - 1
