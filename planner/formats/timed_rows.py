"""Timed collectives as other tools write them, and the tables that can be made of them.

What cannot be true is left out, and said; so is what is too much. Times that fall are kept: the
table's cost pools them (`planner.measured`).

Complexity: O(rows · log rows). Source: own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from statistics import median_low

from planner.errors import InvalidInputError
from planner.measured import Collective, Link, Measured, MeasuredNetwork
from planner.network import scattered
from planner.units import counted, format_bytes

__all__ = ["LINES", "TimedRow", "bus_factor", "listed", "network_of"]

LINES = 5
"""Most lines a warning lists."""

MOST_SIZES = 96
"""Sizes of a table; of more, neighbours become one: the medians of their sizes and times."""

FALLS = Fraction(4, 5)
"""A time below this share of that of a smaller size is pointed out."""


@dataclass(frozen=True, slots=True)
class TimedRow:
    """One time of one size.

    Attributes
    ----------
    collective : str
        What was timed.
    ranks, per_host : int
        Among how many ranks, so many a host.
    size_bytes, time_ns : int
        The size of the whole message, and its time, above 0.
    where : str
        Where it stands, such as ``line 12``.
    """

    collective: Collective
    ranks: int
    per_host: int
    size_bytes: int
    time_ns: int
    where: str


def bus_factor(collective: Collective, ranks: int) -> Fraction:
    """Return the bus bandwidth of a collective for each of its bandwidth, as nccl-tests define."""
    share = scattered(ranks)
    return 2 * share if collective == "all_reduce" else share


def listed(places: Sequence[str]) -> str:
    """Return the first of some places, and how many there are beside them."""
    more = len(places) - LINES
    return ", ".join(places[:LINES]) + (f" and {more} more" if more > 0 else "")


def network_of(
    rows: Iterable[TimedRow], links: Sequence[Link] = ()
) -> tuple[MeasuredNetwork, tuple[str, ...]]:
    """Return the tables of some rows, and what of them was left out or is doubtful.

    Repeated sizes count by their median, of two in the middle the lower one.

    Parameters
    ----------
    rows : iterable of TimedRow
        In any order.
    links : sequence of Link
        The hosts' links, where they have several kinds.

    Raises
    ------
    InvalidInputError
        If no collective has two sizes.
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
    """Return where times fall strongly below what a smaller size took."""
    falls, most, at = [], 0, 0
    for size, time in points:
        if time < FALLS * most:
            falls.append(f"{format_bytes(size)} takes {time / most:.2f} of {format_bytes(at)}")
        if time > most:
            most, at = time, size
    return falls


def _thinned(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first and the last point, and medians of neighbours between, as room is for.

    A time that says more of what else happened then than of its size does not stand for them all.
    """
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
