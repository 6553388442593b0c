"""Costs in constraint programs: integer lines, and parameters as pieces of equal size.

Problem: CP-SAT takes small integers only; the pieces of a cost are rational.
Guarantee: exact: the lines, rounded up, give the time of a transfer.
Complexity: O(P²) for P pieces; `is_subadditive` O(C² log C) for their C corners.
Source: own.
"""

from bisect import bisect_left
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

from planner.model.costs import LinearPiece, TransferCost


class Share(NamedTuple):
    """A number of pieces of one size that belong to a parameter."""

    bytes: int
    pieces: int


def shares_of(size: int, quantum: int) -> list[Share]:
    """Return the whole quanta of a parameter, then its remainder."""
    pieces, rest = divmod(size, quantum)
    return [Share(quantum, pieces)] * (pieces > 0) + [Share(rest, 1)] * (rest > 0)


class ModelLine(NamedTuple):
    """A linear piece in integers: on first <= u <= last, duration·den >= num·u + constant."""

    first: int
    last: int
    num: int
    constant: int
    den: int


def model_lines(cost: TransferCost, unit: int, total: int, horizon: int) -> list[ModelLine]:
    """Return the pieces that may give the time of a transfer of u units, none of them dominated."""
    lines = [line for piece in cost.pieces() if (line := _line(piece, unit, total)) is not None]

    def at(line: ModelLine, size: int) -> Fraction:
        return Fraction(line.num * size + line.constant, line.den)

    def rules_out(better: ModelLine, line: ModelLine) -> bool:
        return (
            better.first <= line.first
            and line.last <= better.last
            and all(at(better, size) <= at(line, size) for size in (line.first, line.last))
        )

    kept: list[ModelLine] = []
    for line in lines:
        if min(at(line, line.first), at(line, line.last)) > horizon:
            continue
        if not any(rules_out(better, line) for better in kept):
            kept = [worse for worse in kept if not rules_out(line, worse)]
            kept.append(line)
    return kept


def _line(piece: LinearPiece, unit: int, total: int) -> ModelLine | None:
    """Return the integer form of a piece for transfers of whole units; None if none lies on it.

    Only the time rounded up matters, so the slope may be replaced by the least fraction not below
    it whose denominator is at most the longest distance from the piece's start. For any distance t
    up to that, ⌈slope·t⌉ / t is such a fraction, so both slopes round up to the same time.
    """
    stop = total if piece.stop is None else min(piece.stop, total)
    first, last = max(1, -(-piece.start // unit)), stop // unit
    if first > last:
        return None
    # In steps of `step` bytes from the piece's start, every whole number of units is met.
    step = gcd(unit, piece.start)
    slope = piece.slope * step
    if piece.value_ns.denominator == 1:
        slope = rounded_up(slope, (last * unit - piece.start) // step)
    den = lcm(slope.denominator, piece.value_ns.denominator)
    constant = (piece.value_ns - slope * (piece.start // step)) * den
    return ModelLine(first, last, int(slope * (unit // step) * den), int(constant), den)


def rounded_up(value: Fraction, most: int) -> Fraction:
    """Return the least fraction >= `value` with a denominator of at most `most`."""
    near = value.limit_denominator(max(most, 1))
    if near >= value:
        return near
    # The next one after a/b is c/d with bc - ad = 1 and d as large as can be.
    a, b = near.numerator, near.denominator
    d = pow(-a, -1, b)
    d += (max(most, 1) - d) // b * b
    return Fraction(a * d + 1, b * d)


def is_subadditive(cost: TransferCost, total: int) -> bool:
    """Return whether f(a) + f(b) >= f(a + b), unrounded, for all real sizes a, b >= 1.

    For a + b up to `total` bytes. Sufficient: the time per byte never rises, as on every piece with
    a non-negative value at size 0. Otherwise: f is linear between its corners, so the difference is
    linear on polygons whose vertices have two of a, b and a + b at corners.
    """
    pieces = [
        (first, last, piece)
        for piece in cost.pieces()
        if (first := max(piece.start, 1))
        <= (last := total if piece.stop is None else min(piece.stop, total))
    ]
    if all(piece.value_ns >= piece.slope * piece.start for _, _, piece in pieces):
        return True
    # f is the minimum of the pieces: its corners are their ends and intersections.
    corners = {Fraction(size) for first, last, _ in pieces for size in (first, last)}
    for number, (first, last, piece) in enumerate(pieces):
        for other_first, other_last, earlier in pieces[:number]:
            if piece.slope != earlier.slope:
                meeting = (earlier.time(0) - piece.time(0)) / (piece.slope - earlier.slope)
                if max(first, other_first) < meeting < min(last, other_last):
                    corners.add(meeting)
    sizes = sorted(corners)
    times = [
        min(
            piece.value_ns + piece.slope * (size - piece.start)
            for first, last, piece in pieces
            if first <= size <= last
        )
        for size in sizes
    ]

    def time(size: Fraction) -> Fraction:
        right = bisect_left(sizes, size)
        if sizes[right] == size:
            return times[right]
        low, high = sizes[right - 1], sizes[right]
        return times[right - 1] + (times[right] - times[right - 1]) * (size - low) / (high - low)

    return all(
        time(a) + time(b) >= time(a + b)
        for a in sizes
        for b in {*sizes, *(size - a for size in sizes)}
        if b >= 1 and a + b <= total
    )
