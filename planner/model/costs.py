"""The cost of a transfer as a function of its size: affine, a measured table, or one per depth.

A table is linear between its points and extended by its last slope. Arithmetic is exact and rounded
up to whole nanoseconds once per transfer, so that a bound on the unrounded times stays a bound. The
time of one size is a Python integer of any length. Times of arrays are 64-bit integers: they never
wrap around; a time that does not fit is an error.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from planner.model.errors import InvalidInputError
from planner.model.validation import MAX_TOTAL, exact, integer, set_exact, set_integer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CostT = TypeVar(
    "CostT",
    "AffineCost",
    "TableCost",
    "AffineCost | TableCost",
    "AffineCost | TableCost | DepthCost",
)

_TOO_LONG = MAX_TOTAL + 1
"""Stands in arrays for every time that does not fit: the largest 64-bit integer."""


class LinearPiece(NamedTuple):
    """A range of sizes on which the unrounded time is ``value_ns + slope·(size - start)``."""

    start: int
    stop: int | None
    value_ns: Fraction
    slope: Fraction

    def time(self, size: int) -> Fraction:
        """Return the unrounded time (ns) of a size on this piece."""
        return self.value_ns + self.slope * (size - self.start)


class _Cost:
    """The methods that all costs share."""

    __slots__ = ()

    def times(self, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `costs_ns`, with 2^63 - 1 for times that do not fit."""
        raise NotImplementedError

    def costs_ns(self, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `cost_ns` of every element of `sizes`; raise InvalidInputError beyond 63 bits."""
        times = self.times(sizes)
        if int(times.max(initial=0)) == _TOO_LONG:
            raise InvalidInputError("network", "what a transfer takes must fit in 63 bits")
        return times


@dataclass(frozen=True, slots=True)
class AffineCost(_Cost):
    """Start-up cost plus time per byte, ``f(d) = α + β·d``.

    Parameters
    ----------
    startup_ns : int
        Start-up cost α of one transfer, in nanoseconds.
    ns_per_byte : Fraction or float
        Time per byte β, in nanoseconds; a float is kept as the exact decimal that it shows.
    """

    startup_ns: int
    ns_per_byte: Fraction

    def __post_init__(self) -> None:
        set_integer(self, "startup_ns")
        set_exact(self, "ns_per_byte")

    @classmethod
    def from_bandwidth(cls, startup_ns: int, bytes_per_s: Fraction | float) -> "AffineCost":
        """Return the cost over a link of `bytes_per_s` bytes per second."""
        return cls(startup_ns, Fraction(10**9) / exact(bytes_per_s, "bytes_per_s", positive=True))

    @property
    def is_monotone(self) -> bool:
        """Always true: β is not negative."""
        return True

    def pieces(self) -> tuple[LinearPiece, ...]:
        """Return the single piece."""
        return (LinearPiece(0, None, Fraction(self.startup_ns), self.ns_per_byte),)

    def cost_ns(self, size: int) -> int:
        """Return ``⌈α + β·size⌉``."""
        rate = self.ns_per_byte
        return self.startup_ns - (-size * rate.numerator // rate.denominator)

    def times(self, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `costs_ns`, with 2^63 - 1 for times that do not fit."""
        rate, largest = self.ns_per_byte, int(sizes.max(initial=1))
        between = max(largest * rate.numerator, rate.denominator, self.cost_ns(largest))
        if between > MAX_TOTAL:
            return _one_by_one(self, sizes)
        return self.startup_ns - (-sizes * rate.numerator // rate.denominator)


@dataclass(frozen=True, slots=True)
class TableCost(_Cost):
    """A measured cost: linear between the points, extended by the last slope.

    A transfer smaller than the first point costs as much as the first point.

    Parameters
    ----------
    points : tuple of (int, int)
        At least two pairs (bytes, nanoseconds), bytes strictly increasing. Times may fall between
        points (protocols switch), except in the last interval.
    """

    points: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        try:
            points = tuple((size, time) for size, time in self.points)
        except (TypeError, ValueError):
            raise InvalidInputError("cost_table", "expected pairs of bytes and ns") from None
        if len(points) < 2:
            raise InvalidInputError("cost_table", f"expected at least 2 points, got {len(points)}")
        points = tuple(
            (integer(size, f"cost_table[{place}][0]"), integer(time, f"cost_table[{place}][1]"))
            for place, (size, time) in enumerate(points)
        )
        object.__setattr__(self, "points", points)
        for position, (size, _) in enumerate(points):
            if position and size <= points[position - 1][0]:
                raise InvalidInputError(
                    f"cost_table[{position}][0]",
                    f"expected an integer > {points[position - 1][0]}, got {size}",
                )
        if points[-1][1] < points[-2][1]:
            raise InvalidInputError(
                f"cost_table[{len(points) - 1}][1]",
                f"expected an integer >= {points[-2][1]} (the last slope goes on for ever), "
                f"got {points[-1][1]}",
            )

    @property
    def startup_ns(self) -> int:
        """Time of the smallest measured transfer."""
        return self.points[0][1]

    @property
    def ns_per_byte(self) -> Fraction:
        """The last slope: time per byte beyond the last size."""
        return self.pieces()[-1].slope

    @property
    def is_monotone(self) -> bool:
        """Whether the times never fall."""
        return all(low[1] <= high[1] for low, high in pairwise(self.points))

    def pieces(self) -> tuple[LinearPiece, ...]:
        """Return the flat piece below the first point, and one piece between consecutive points."""
        (first, least), (last, _) = self.points[0], self.points[-1]
        between = [
            LinearPiece(x0, x1 if x1 < last else None, Fraction(y0), Fraction(y1 - y0, x1 - x0))
            for (x0, y0), (x1, y1) in pairwise(self.points)
        ]
        return (*([LinearPiece(0, first, Fraction(least), Fraction(0))] if first else ()), *between)

    def cost_ns(self, size: int) -> int:
        """Return the interpolated time of one transfer of `size` bytes, rounded up."""
        points = self.points
        if size <= points[0][0]:
            return points[0][1]
        upper = min(bisect_right(points, size, key=lambda point: point[0]), len(points) - 1)
        (x0, y0), (x1, y1) = points[upper - 1], points[upper]
        return y0 - (-(size - x0) * (y1 - y0) // (x1 - x0))

    def times(self, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `costs_ns`, with 2^63 - 1 for times that do not fit."""
        import numpy as np

        x = np.array([point[0] for point in self.points], dtype=np.int64)
        y = np.array([point[1] for point in self.points], dtype=np.int64)
        span = max(int(sizes.max(initial=0)), self.points[-1][0])
        if max(span * int(np.abs(np.diff(y)).max()), self.cost_ns(span)) > MAX_TOTAL:
            return _one_by_one(self, sizes)
        upper = np.clip(np.searchsorted(x, sizes, side="right"), 1, len(x) - 1)
        x0, y0, x1, y1 = x[upper - 1], y[upper - 1], x[upper], y[upper]
        inside = np.maximum(sizes - x0, 0)
        return np.asarray(y0 - (-inside * (y1 - y0) // (x1 - x0)), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class DepthCost(_Cost):
    """A cost for each depth (number of chunks in flight); a transfer takes the cheapest."""

    # Depths, increasing from 1, each with the cost of a transfer cut into that number of chunks.
    by_depth: tuple[tuple[int, "AffineCost | TableCost"], ...]

    def __post_init__(self) -> None:
        by_depth = tuple((integer(depth, "depths"), cost) for depth, cost in self.by_depth)
        object.__setattr__(self, "by_depth", by_depth)
        depths = [depth for depth, _ in by_depth]
        if not depths or depths[0] != 1 or depths != sorted(set(depths)):
            raise InvalidInputError("depths", f"expected increasing depths from 1, got {depths}")

    @property
    def startup_ns(self) -> int:
        """Time of the smallest transfer at its best depth."""
        return min(cost.startup_ns for _, cost in self.by_depth)

    @property
    def is_monotone(self) -> bool:
        """Whether the times never fall at any depth."""
        return all(cost.is_monotone for _, cost in self.by_depth)

    @property
    def is_concave(self) -> bool:
        """Whether the cost is a minimum of affine costs."""
        return all(isinstance(cost, AffineCost) for _, cost in self.by_depth)

    def pieces(self) -> tuple[LinearPiece, ...]:
        """Return the pieces of all depths."""
        return tuple(piece for _, cost in self.by_depth for piece in cost.pieces())

    def best_depth(self, size: int) -> int:
        """Return the cheapest depth for `size` bytes; ties go to the smallest depth."""
        return min(self.by_depth, key=lambda pair: (pair[1].cost_ns(size), pair[0]))[0]

    def at_depth(self, depth: int) -> "AffineCost | TableCost":
        """Return the cost at one depth."""
        return dict(self.by_depth)[depth]

    def cost_ns(self, size: int) -> int:
        """Return the time of one transfer of `size` bytes at its best depth, rounded up."""
        return min(cost.cost_ns(size) for _, cost in self.by_depth)

    def times(self, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
        """Return `costs_ns`; a depth whose own times do not fit is not chosen."""
        import numpy as np

        least: NDArray[np.int64] = np.min([cost.times(sizes) for _, cost in self.by_depth], axis=0)
        return least


TransferCost = AffineCost | TableCost | DepthCost
"""The time of one transfer as a function of its size."""


def scaled_cost(
    cost: CostT,
    *,
    startup: Fraction | int = 1,
    rate: Fraction | int = 1,
    extra_ns: int = 0,
    rounding: Callable[[Fraction], int] = round,
    most_ns: int | None = None,
) -> CostT:
    """Return a cost with its start-up and its time beyond the start-up multiplied.

    Of a table, the time of the smallest transfer is the start-up. `extra_ns` is added to the
    start-up, `rounding` makes a time whole nanoseconds, and times of a table are cut to `most_ns`.
    InvalidInputError if a resulting number is too large.
    """
    if isinstance(cost, DepthCost):
        at = partial(scaled_cost, startup=startup, rate=rate, extra_ns=extra_ns, rounding=rounding)
        depths = ((depth, at(priced, most_ns=most_ns)) for depth, priced in cost.by_depth)
        return DepthCost(tuple(depths))
    if isinstance(cost, AffineCost):
        start = rounding(Fraction(cost.startup_ns * startup)) + extra_ns
        return AffineCost(start, cost.ns_per_byte * rate)
    assert isinstance(cost, TableCost)
    first, rows = cost.startup_ns, []
    for size, time in cost.points:
        lasts = rounding(Fraction(min(time, first) * startup + max(time - first, 0) * rate))
        rows.append((size, lasts + extra_ns if most_ns is None else min(lasts + extra_ns, most_ns)))
    return TableCost(tuple(rows))


def piece_ends(cost: TransferCost, largest: int) -> Iterator[tuple[LinearPiece, int]]:
    """Yield each piece with the first and the last of its sizes from 1 to `largest` bytes."""
    for piece in cost.pieces():
        first = max(piece.start, 1)
        last = largest if piece.stop is None else min(piece.stop, largest)
        if first <= last:
            yield piece, first
            yield piece, last


def least_rate(cost: TransferCost, total_bytes: int) -> Fraction:
    """Return the least unrounded time per byte of any transfer of 1 to `total_bytes` bytes.

    On a linear piece, time over size, ``slope + (value - slope·start) / size``, is monotone, so the
    minimum is at an end of a piece.
    """
    return min(piece.time(size) / size for piece, size in piece_ends(cost, total_bytes))


def _one_by_one(cost: AffineCost | TableCost, sizes: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Return the times of sizes whose products need more than 64 bits."""
    import numpy as np

    times = [min(cost.cost_ns(size), _TOO_LONG) for size in sizes.tolist()]
    return np.array(times, dtype=np.int64)


Line = tuple[Fraction, Fraction]  # an affine cost: start-up α (ns) and β (ns per byte)


@lru_cache(maxsize=256)  # all plans for a network share these lines
def supporting_lines(cost: TransferCost, largest: int) -> tuple[Line, ...]:
    """Return affine lower bounds (α, β) on the cost of transfers of 1 … `largest` bytes.

    They are the `lower_lines` of the cost.
    """
    corners: dict[int, Fraction] = {}
    for piece, size in piece_ends(cost, largest):
        corners[size] = min(piece.time(size), corners.get(size, piece.time(size)))
    return lower_lines(corners)


def lower_lines(points: Mapping[int, Fraction | int]) -> tuple[Line, ...]:
    """Return lines below all points: the horizontal one, and the edges of the lower convex hull.

    Points are times by size. Edges have a non-negative start-up and slope.
    """
    hull: list[tuple[int, Fraction | int]] = []
    for x, y in sorted(points.items()):
        while len(hull) > 1 and _turns_right(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    lines = [(Fraction(min(points.values())), Fraction(0))]
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = Fraction(y1 - y0) / (x1 - x0)
        if slope >= 0 and y0 - slope * x0 >= 0:
            lines.append((y0 - slope * x0, slope))
    return tuple(lines)


def _turns_right(
    left: tuple[int, Fraction | int],
    middle: tuple[int, Fraction | int],
    right: tuple[int, Fraction | int],
) -> bool:
    """Return whether `middle` lies on or above the line from `left` to `right`."""
    (x0, y0), (x1, y1), (x2, y2) = left, middle, right
    return (y1 - y0) * (x2 - x0) >= (y2 - y0) * (x1 - x0)
