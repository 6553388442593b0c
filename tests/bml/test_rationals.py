"""Exact solutions of linear systems, against systems made from their solutions."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.families.bml.rationals import solve_exactly
from planner.solving.deadline import Deadline, TimeUpError


def determinant(matrix: list[list[int]]) -> int:
    """By cofactors."""
    if not matrix:
        return 1
    return sum(
        (-1) ** column
        * matrix[0][column]
        * determinant([row[:column] + row[column + 1 :] for row in matrix[1:]])
        for column in range(len(matrix))
    )


def replaced(matrix: list[list[int]], column: int, right: list[int]) -> list[list[int]]:
    return [
        [*row[:column], value, *row[column + 1 :]] for row, value in zip(matrix, right, strict=True)
    ]


@st.composite
def systems(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    size = draw(st.integers(1, 5))
    numbers = st.lists(st.integers(-9, 9), min_size=size, max_size=size)
    return draw(st.lists(numbers, min_size=size, max_size=size)), draw(numbers)


@settings(max_examples=300)
@given(systems())
def test_it_is_cramers_rule(system: tuple[list[list[int]], list[int]]) -> None:
    matrix, right = system
    whole = determinant(matrix)
    expected = whole and [
        Fraction(determinant(replaced(matrix, column, right)), whole)
        for column in range(len(matrix))
    ]
    assert solve_exactly(matrix, right) == (expected or None)


@given(systems(), st.integers(-3, 3), st.integers(-1, 1))
def test_more_equations_than_unknowns(
    system: tuple[list[list[int]], list[int]], factor: int, off: int
) -> None:
    matrix, right = system
    solution = solve_exactly(matrix, right)
    assume(solution is not None)
    sum_row = [factor * a + b for a, b in zip(matrix[0], matrix[-1], strict=True)]
    more = [sum_row, *matrix]
    value = factor * right[0] + right[-1]
    assert solve_exactly(more, [value + off, *right]) == (None if off else solution)


def test_large_denominators() -> None:
    # x_i = 1/7^i by a chain of equations 7·x_{i+1} = x_i.
    size = 60
    matrix = [[0] * size for _ in range(size)]
    matrix[0][0] = 1
    for row in range(1, size):
        matrix[row][row - 1], matrix[row][row] = -1, 7
    assert solve_exactly(matrix, [1] + [0] * (size - 1)) == [
        Fraction(1, 7**power) for power in range(size)
    ]


def test_the_deadline_ends_it() -> None:
    with pytest.raises(TimeUpError):
        solve_exactly([[1]], [1], Deadline(1e-9))
