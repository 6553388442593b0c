"""Fit of the scheduler's constants to measured overheads.

Problem: for measured (m, g, o), find d0, d1, d2 >= 0 such that (d0 + d1·m)/g + d2·m is near o.

Method: exact least squares on relative errors. Weights 1/o are rounded to 40 bits; a weight scales
a whole row, so exact fits and equally good fits stay so.

Guarantee: the least sum of squares. Among equal fits: as few constants as possible, task_ns before
group_ns before constant_task_ns. The constants that cannot be told apart are named.
Complexity: O(rows).
Source: group scheduling in Venkataraman, Ding, Ermolin; the fit is own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from operator import mul

from planner.model.errors import InvalidInputError
from planner.model.validation import integer, shown

# ---
# Exact non-negative least squares with few unknowns.
#
# Problem: minimise |A·x - b|² over x >= 0, for integer A and b.
#
# Method: some optimum uses linearly independent columns only (Carathéodory), and on these columns
# it is the plain least-squares solution. So every independent set of columns is tried, by the
# normal equations in rational arithmetic.
#
# Guarantee: optimal, exactly. Of several optima the one whose set of columns comes first in `sets`.
# Complexity: O(rows·columns²), and O(columns³) for each of up to 2^columns sets. Source: Lawson,
# Hanson, "Solving Least Squares Problems", chapter 23 (the optimality conditions; their method
# exchanges columns instead).


def best_of(products: Sequence[Sequence[int]], sets: Iterable[Sequence[int]]) -> list[Fraction]:
    """Return the best non-negative x whose support is one of `sets`; dependent sets are skipped.

    `products` are the scalar products of the columns of A, and of b as the last one.
    """
    right = [line[-1] for line in products[:-1]]
    best, gained = [Fraction(0)] * len(right), Fraction(0)
    for columns in sets:
        system = [[products[i][j] for j in columns] for i in columns]
        whole = _determinant(system)
        if not whole:
            continue
        solution = {}
        for place, column in enumerate(columns):  # Cramer's rule
            replaced = [
                [*row[:place], right[i], *row[place + 1 :]]
                for row, i in zip(system, columns, strict=True)
            ]
            solution[column] = Fraction(_determinant(replaced), whole)
        # At a least-squares solution |A·x - b|² = |b|² - xᵀ·Aᵀ·b.
        gain = sum((x * right[i] for i, x in solution.items()), Fraction(0))
        if min(solution.values()) >= 0 and gain > gained:
            best, gained = [solution.get(i, Fraction(0)) for i in range(len(right))], gain
    return best


def rank(rows: Sequence[Sequence[int]]) -> int:
    """Return how many rows are linearly independent."""
    basis: list[Sequence[int]] = []
    for row in rows:
        if len(basis) == len(row):
            break
        if _determinant(_products([*basis, row])):
            basis.append(row)
    return len(basis)


def _products(vectors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the scalar products of vectors with each other."""
    return [[sum(map(mul, first, second)) for second in vectors] for first in vectors]


def _determinant(matrix: Sequence[Sequence[int]]) -> int:
    """Return a determinant, by expansion: there are few rows."""
    if not matrix:
        return 1
    total = 0
    for column, entry in enumerate(matrix[0]):
        minor = [[*row[:column], *row[column + 1 :]] for row in matrix[1:]]
        total += (-1) ** column * entry * _determinant(minor)
    return total


CONSTANTS = ("group_ns", "task_ns", "constant_task_ns")

_PREFERRED = (1, 0, 2)
_SETS = [columns for size in (1, 2, 3) for columns in combinations(_PREFERRED, size)]
_BITS = 40


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
    rows = _weighted(measurements)
    products = _products(list(zip(*rows, strict=True)))
    fitted = best_of(products, _SETS)
    shapes = [_shape(measurement) for measurement in measurements]
    known = rank(shapes)
    group, task, always = fitted
    return Calibration(
        group,
        task,
        always,
        errors=tuple(_error(fitted, measurement) for measurement in measurements),
        confounded=tuple(
            name
            for column, name in enumerate(CONSTANTS)
            if rank([row[:column] + row[column + 1 :] for row in shapes]) == known
        ),
    )


def _check(measurement: object, path: str) -> None:
    if not isinstance(measurement, Measurement):
        raise InvalidInputError(path, f"expected a Measurement, got {shown(measurement)}")
    for name in ("tasks", "group_size", "overhead_ns"):
        integer(getattr(measurement, name), f"{path}.{name}", minimum=1)


def _shape(measurement: Measurement) -> tuple[int, int, int]:
    """Return the factors of the constants in the overhead of a whole group."""
    return 1, measurement.tasks, measurement.tasks * measurement.group_size


def _weighted(measurements: Sequence[Measurement]) -> list[list[int]]:
    """Return one integer row per measurement, weighted so that all right sides (last) are near."""
    spent = [measurement.overhead_ns * measurement.group_size for measurement in measurements]
    scale = max(spent) << _BITS
    return [
        [round(Fraction(scale, value)) * number for number in (*_shape(measurement), value)]
        for measurement, value in zip(measurements, spent, strict=True)
    ]


def _error(constants: list[Fraction], measurement: Measurement) -> Fraction:
    """Return the relative error of a prediction; positive if it is too high."""
    group, task, always = constants
    tasks = measurement.tasks
    predicted = (group + task * tasks) / measurement.group_size + always * tasks
    return predicted / measurement.overhead_ns - 1
