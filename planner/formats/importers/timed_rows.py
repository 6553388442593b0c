"""Measured collectives as rows, and the tables made of them.

Rows that cannot be used are left out with a warning. Times that fall with the size are kept: the
table's cost pools them (`planner.model.measured`).

Complexity: O(rows · log rows). Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from statistics import median_low

from planner.model.errors import InvalidInputError
from planner.model.measured import Collective, Link, Measured, MeasuredNetwork
from planner.model.network import scattered
from planner.model.units import counted, format_bytes

LINES = 5
"""Largest number of lines that a warning lists."""

MOST_SIZES = 96
"""Largest number of sizes in a table; beyond it neighbours are merged into medians."""

FALLS = Fraction(4, 5)
"""A time below this share of the time of a smaller size gets a warning."""


@dataclass(frozen=True, slots=True)
class TimedRow:
    """One measured time of a collective.

    `size_bytes` is that of the whole message; `where` the place in the file, such as ``line 12``.
    """

    collective: Collective
    ranks: int
    per_host: int
    size_bytes: int
    time_ns: int
    where: str


def bus_factor(collective: Collective, ranks: int) -> Fraction:
    """Return bus bandwidth / algorithm bandwidth, as nccl-tests define them."""
    share = scattered(ranks)
    return 2 * share if collective == "all_reduce" else share


def listed(places: Sequence[str]) -> str:
    """Return a text with the first of some places, and the number of the others."""
    more = len(places) - LINES
    return ", ".join(places[:LINES]) + (f" and {more} more" if more > 0 else "")


def network_of(
    rows: Iterable[TimedRow], links: Sequence[Link] = ()
) -> tuple[MeasuredNetwork, tuple[str, ...]]:
    """Return the tables of some rows, and warnings about rows that were left out or are doubtful.

    Repeated sizes count by their lower median. At least one collective needs two sizes.
    """
    tables: list[Measured] = []
    warnings: list[str] = []

    def key(row: TimedRow) -> tuple[str, int, int, int]:
        return row.collective, row.per_host, row.ranks, row.size_bytes

    ordered = sorted(rows, key=key)
    for (_, per_host, ranks), group in groupby(ordered, key=lambda row: key(row)[:3]):
        same = list(group)
        name = f"{same[0].collective} among {ranks} ranks, {per_host} a host"
        by_size = [
            (size, [row.time_ns for row in repeated])
            for size, repeated in groupby(same, key=lambda row: row.size_bytes)
        ]
        repeated = [size for size, times in by_size if len(times) > 1]
        if repeated:
            warnings.append(
                f"{name}: {counted(len(repeated), 'size')} measured more than once "
                f"({listed([format_bytes(size) for size in repeated])}): medians are taken"
            )
        points = [(size, median_low(times)) for size, times in by_size]
        if len(points) < 2:
            warnings.append(
                f"{name}: left out, one size ({format_bytes(points[0][0])}) is no table"
            )
            continue
        falls = _falls(points)
        if falls:
            warnings.append(
                f"{name}: times fall ({listed(falls)}): the table pools them, so that larger "
                "transfers take no less time"
            )
        kept = _thinned(points)
        if len(kept) < len(points):
            warnings.append(
                f"{name}: {len(points):,} sizes made {len(kept)}, by medians of neighbours"
            )
        tables.append(Measured(same[0].collective, ranks, per_host, tuple(kept)))
    if not tables:
        raise InvalidInputError("", "no collective was timed for two sizes: that makes no table")
    return MeasuredNetwork(tuple(tables), tuple(links)), tuple(warnings)


def _falls(points: Sequence[tuple[int, int]]) -> list[str]:
    """Return a warning for each time far below that of a smaller size."""
    falls, most, at = [], 0, 0
    for size, time in points:
        if time < FALLS * most:
            falls.append(f"{format_bytes(size)} takes {time / most:.2f} of {format_bytes(at)}")
        if time > most:
            most, at = time, size
    return falls


def _thinned(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return at most `MOST_SIZES` points: first, last, and medians of neighbours between."""
    if len(points) <= MOST_SIZES:
        return list(points)
    first, last = max(points[0][0], 1), points[-1][0]
    kept = [points[0]]
    near: list[tuple[int, int]] = []
    for point, after in pairwise(points[1:]):
        near.append(point)
        if after[0] >= first * (last / first) ** (len(kept) / (MOST_SIZES - 1)):
            sizes, times = zip(*near, strict=True)
            kept.append((median_low(sizes), median_low(times)))
            near = []
    return [*kept, points[-1]]
