"""Exact non-negative least squares with few unknowns.

Problem: minimise |A·x - b|² over x >= 0, for integer A and b.

Method: some optimum uses linearly independent columns only (Carathéodory), and on these columns it
is the plain least-squares solution. So every independent set of columns is tried, by the normal
equations in rational arithmetic.

Guarantee: optimal, exactly. Of several optima the one whose set of columns comes first in `sets`.
Complexity: O(rows·columns²), and O(columns³) for each of up to 2^columns sets.
Source: Lawson, Hanson, "Solving Least Squares Problems", chapter 23 (the optimality conditions;
their method exchanges columns instead).
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

__all__ = ["Normal", "best_of", "independent", "normal_equations"]


class Normal(NamedTuple):
    """The normal equations of A·x = b."""

    matrix: list[list[int]]  # Aᵀ·A
    right: list[int]  # Aᵀ·b


def normal_equations(rows: Iterable[Sequence[int]], columns: int) -> Normal:
    """Return the normal equations of rows whose last entry is the right side."""
    matrix = [[0] * columns for _ in range(columns)]
    right = [0] * columns
    for *row, value in rows:
        for i, first in enumerate(row):
            right[i] += first * value
            for j, second in enumerate(row):
                matrix[i][j] += first * second
    return Normal(matrix, right)


def best_of(equations: Normal, sets: Iterable[Sequence[int]]) -> list[Fraction]:
    """Return the best non-negative x whose support is one of `sets`; dependent sets are skipped."""
    matrix, right = equations
    best, gained = [Fraction(0)] * len(right), Fraction(0)
    for columns in sets:
        solution = _solved([[matrix[i][j] for j in columns] + [right[i]] for i in columns])
        if solution is None or min(solution) < 0:
            continue
        # At a least-squares solution |A·x - b|² = |b|² - xᵀ·Aᵀ·b.
        gain = sum((x * right[i] for i, x in zip(columns, solution, strict=True)), Fraction(0))
        if gain > gained:
            gained = gain
            best = [Fraction(0)] * len(right)
            for i, x in zip(columns, solution, strict=True):
                best[i] = x
    return best


def independent(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the places of the first rows that form a basis of the row space."""
    places: list[int] = []
    for place, row in enumerate(rows):
        chosen = [rows[earlier] for earlier in places]
        if len(places) == len(row):
            break
        if len(_reduced([[Fraction(entry) for entry in line] for line in (*chosen, row)])) > len(
            places
        ):
            places.append(place)
    return places


def _solved(rows: list[list[int]]) -> list[Fraction] | None:
    """Return the unique solution of a square system (right side last in each row), or None."""
    size = len(rows)
    reduced = _reduced([[Fraction(entry) for entry in row] for row in rows])
    regular = len(reduced) == size and all(row[place] == 1 for place, row in enumerate(reduced))
    return [row[size] for row in reduced] if regular else None


def _reduced(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    """Return the reduced row echelon form, without rows of zeros."""
    done = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((place for place in range(done, len(rows)) if rows[place][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        rows[done] = [entry / rows[done][column] for entry in rows[done]]
        for place, row in enumerate(rows):
            if place != done and row[column]:
                factor = row[column]
                rows[place] = [
                    entry - factor * pivot_entry
                    for entry, pivot_entry in zip(row, rows[done], strict=True)
                ]
        done += 1
    return rows[:done]
