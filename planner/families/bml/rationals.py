"""Exact rational solution of linear equations with integer coefficients.

Problem: find x with A·x = b, where A has full column rank and at least as many rows as columns.
Method: Dixon's lifting. Invert A modulo a prime p, solve modulo p, divide the residue b - A·x by p
and repeat; each step gives one p-adic digit of x. Hadamard's inequality bounds numerators and
denominators, so enough digits determine x; Euclid's algorithm recovers it.

Guarantee: the answer solves all equations, checked in integers. None: no unique solution (or, for
one p in millions, A is singular modulo p only).
Complexity: O(m³) for m rows and columns, then O(m log m) steps of O(m²), in machine words.
Source: Dixon, "Exact Solution of Linear Equations Using P-Adic Expansions", Numerische Mathematik
40, 1982.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt, prod

from planner.solving.deadline import NEVER, Deadline

PRIME = 2**26 - 5
"""Small enough that sums of thousands of products of two residues stay below 2^63."""


def solve_exactly(
    matrix: Sequence[Sequence[int]], right: Sequence[int], deadline: Deadline = NEVER
) -> list[Fraction] | None:
    """Return the unique x with matrix·x = right, or None; TimeUpError at the deadline.

    All entries must be small (below 2^20 in size).
    """
    import numpy as np

    a, b = np.array(matrix, dtype=np.int64), np.array(right, dtype=np.int64)
    rows, columns = a.shape
    # Gauss-Jordan on [A | I] modulo p. Only pivot rows are added to other rows, so the pivots' part
    # of the right half inverts the pivot rows of A.
    table = np.column_stack([a % PRIME, np.eye(rows, dtype=np.int64)])
    pivots: list[int] = []
    for column in range(columns):
        deadline.check()
        eligible = table[:, column] != 0
        eligible[pivots] = False
        if not eligible.any():
            return None
        pivot = int(eligible.argmax())
        pivots.append(pivot)
        table[pivot] = table[pivot] * pow(int(table[pivot, column]), -1, PRIME) % PRIME
        others = np.flatnonzero(table[:, column])
        others = others[others != pivot]
        factors = table[others, column]
        table[others] = (table[others] - np.outer(factors, table[pivot])) % PRIME
    inverse = table[np.ix_(pivots, [columns + pivot for pivot in pivots])]
    square, residue = a[pivots], b[pivots]

    # Cramer's rule: numerators and denominators are determinants.
    largest = prod(isqrt(int(norm)) + 1 for norm in [*(square**2).sum(axis=0), (residue**2).sum()])
    expansion, modulus = [0] * columns, 1
    while modulus <= 2 * largest**2:
        deadline.check()
        digits = inverse @ (residue % PRIME) % PRIME
        residue = (residue - square @ digits) // PRIME
        for place, digit in enumerate(digits.tolist()):
            expansion[place] += digit * modulus
        modulus *= PRIME

    denominator = 1
    for number in expansion:
        denominator *= _denominator(number * denominator % modulus, modulus, largest)
    numerators = [
        (number * denominator + modulus // 2) % modulus - modulus // 2 for number in expansion
    ]
    if (
        a.astype(object) @ np.array(numerators, dtype=object) != b.astype(object) * denominator
    ).any():
        return None
    return [Fraction(numerator, denominator) for numerator in numerators]


def _denominator(number: int, modulus: int, largest: int) -> int:
    """Return the smallest q > 0 for which number·q mod modulus is at most `largest` in size."""
    if modulus - number <= largest:
        return 1
    before, after, q_before, q_after = modulus, number, 0, 1
    while after > largest:
        quotient = before // after
        before, after = after, before - quotient * after
        q_before, q_after = q_after, q_before - quotient * q_after
    return abs(q_after)
