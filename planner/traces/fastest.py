"""Estimates the cost of a transfer without waiting: the highest line below all recorded transfers.

Method: of all lines below the fastest transfer of each size, with start-up and slope >= 0, take the
one nearest to these in sum: an edge of the lower convex hull, or the line through the origin and
one point.
Guarantee: no recorded transfer was faster than its line. With a single size the start-up is unknown
and taken as 0.
Complexity: O(n log n) for the hull, O(edges · sizes) for the choice. Source: own.
"""

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

from planner.model.costs import AffineCost


def fastest(points: Iterable[tuple[int, int]]) -> AffineCost:
    """Return the lower envelope of transfers, given as bytes (at least 1) and time (ns)."""
    least: dict[int, int] = {}
    for size, time in points:
        least[size] = min(time, least.get(size, time))
    known = sorted(least.items())
    hull: list[tuple[int, int]] = []
    for x, y in known:
        while len(hull) > 1 and _above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    lines = [(Fraction(0), min(Fraction(y, x) for x, y in known))]
    lines.append((Fraction(min(y for _, y in known)), Fraction(0)))
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = Fraction(y1 - y0, x1 - x0)
        if slope >= 0 and y0 - slope * x0 >= 0:
            lines.append((y0 - slope * x0, slope))
    if len(known) == 1:
        lines = lines[:1]
    startup, slope = max(lines, key=lambda line: sum(line[0] + line[1] * x for x, _ in known))
    return AffineCost(int(startup), slope)


def _above(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether b is not below the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
