"""Measured collectives as rows, Vidur's among them, and the tables made of them.

Rows that cannot be used are left out with a warning. Times that fall with the size are kept: the
table's cost pools them (`planner.model.measured`).

Complexity: O(rows · log rows). Source: own.
"""

import csv
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from io import StringIO
from itertools import pairwise
from statistics import median_low
from typing import Any

from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective, Link, Measured, MeasuredNetwork
from planner.model.network import scattered
from planner.model.units import counted, format_bytes
from planner.model.validation import MAX_VALUE, shown

LINES = 5  # largest number of lines that a warning lists
MOST_SIZES = 96  # largest number of sizes in a table; beyond it neighbours are merged into medians


Read = tuple[list["TimedRow"], tuple[str, ...]]
"""The rows of a file, and warnings about those that were left out."""


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


class Collected:
    """The rows of a file, and the places of those that are left out, by reason."""

    def __init__(self) -> None:
        self.rows: list[TimedRow] = []
        self._left_out: dict[str, list[str]] = {}

    def leave(self, reason: str, where: str) -> None:
        """Leave a row out; `reason` follows the word "row" in the warning."""
        self._left_out.setdefault(reason, []).append(where)

    def add(self, row: TimedRow) -> None:
        """Keep a row, unless its time is out of range."""
        if 0 < row.time_ns <= MAX_VALUE:
            self.rows.append(row)
        else:
            self.leave("with a time out of range" if row.time_ns else "with a time of 0", row.where)

    def read(self, none: str, warnings: Sequence[str] = ()) -> Read:
        """Return the rows and warnings; without a row, raise an error that begins with `none`."""
        told = (
            *warnings,
            *(
                f"left out, {counted(len(places), 'row')} {reason}: {listed(places)}"
                for reason, places in self._left_out.items()
            ),
        )
        if not self.rows:
            raise InvalidInputError("", none + (f" ({'; '.join(told)})" if told else ""))
        return self.rows, told


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
    timed: dict[tuple[Collective, int, int], dict[int, list[int]]] = {}
    for row in rows:
        sizes = timed.setdefault((row.collective, row.per_host, row.ranks), {})
        sizes.setdefault(row.size_bytes, []).append(row.time_ns)
    tables: list[Measured] = []
    warnings: list[str] = []
    for collective, per_host, ranks in sorted(timed):
        by_size = sorted(timed[collective, per_host, ranks].items())
        name = f"{collective} among {ranks} ranks, {per_host} a host"
        repeated = [format_bytes(size) for size, times in by_size if len(times) > 1]
        if repeated:
            warnings.append(
                f"{name}: {counted(len(repeated), 'size')} measured more than once "
                f"({listed(repeated)}): medians are taken"
            )
        points = [(size, median_low(times)) for size, times in by_size]
        if len(points) < 2:
            warnings.append(
                f"{name}: left out, one size ({format_bytes(points[0][0])}) is no table"
            )
            continue
        kept = _thinned(points)
        if len(kept) < len(points):
            warnings.append(
                f"{name}: {len(points):,} sizes made {len(kept)}, by medians of neighbours"
            )
        tables.append(Measured(collective, ranks, per_host, tuple(kept)))
    if not tables:
        raise InvalidInputError("", "no collective was timed for two sizes: that makes no table")
    return MeasuredNetwork(tuple(tables), tuple(links)), tuple(warnings)


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


# ---
# Printed tables, without the prefixes that launchers put before each line of a program's output.
#
# Problem: ``mpirun --tag-output``, ``srun -l``, pdsh, ``kubectl logs --prefix --timestamps``,
# Docker compose and others have prefixes; no list is complete. Method: a table's header is
# unmistakable, so what precedes it on its line is the prefix. Other lines have the same prefix up
# to digits and spaces (times of day, ranks, padding); lines without it are passed on unchanged.
# Guarantee: only what matches a header's prefix from the start of a line is removed.
# Complexity: O(characters · log headers). Source: own.

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_PARTS = re.compile(r"([0-9]+|\s+)")


def printed_lines(text: str, header: re.Pattern[str], word: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of an output without prefixes, each behind its place (``line 12``).

    `header` finds the header of a table in a line. Only lines that contain `word` are searched for
    it, as searching takes long.
    """
    raw = _COLOURS.sub("", text).splitlines()
    headers = [
        (place, _pattern(line[: match.start()]))
        for place, line in enumerate(raw)
        if word in line and (match := header.search(line))
    ]
    places = [place for place, _ in headers]
    for place, line in enumerate(raw):
        after = bisect_right(places, place)
        matches = [
            match
            for _, pattern in headers[max(after - 1, 0) : after + 1]
            if (match := pattern.match(line))
        ]
        longest = max((match.end() for match in matches), default=0)
        yield f"line {place + 1}", line[longest:]


def _pattern(prefix: str) -> re.Pattern[str]:
    """Return a pattern for a prefix with any digits and spaces."""
    if not prefix.strip():
        return re.compile("")
    parts = [
        "[0-9]+" if part[0] in "0123456789" else r"\s*" if part.isspace() else re.escape(part)
        for part in _PARTS.split(prefix.strip())
        if part
    ]
    # If the prefix ends in a space, one must follow: the digits of a row are not part of a rank.
    end = r"(?=\s|$)" if prefix[-1].isspace() else ""
    return re.compile(r"\s*" + "".join(parts) + end)


# ---
# Reads the tables of collectives that Vidur's profiler writes as CSV.
#
# Columns are ``time_stats.NAME.median`` (ms), ``num_workers``, ``devices_per_node``, ``collective``
# and ``size`` (bytes). The size is that of a rank's input buffer, for an all-gather a rank's share;
# for a reduce-scatter it is that of the output. Rows of ranks other than 0 repeat those of rank 0.
#
# Complexity: O(rows). Source: Agrawal et al., "Vidur", MLSys 2024; vidur/profiling/collectives of
# microsoft/vidur.

_NEEDED = ("num_workers", "size", "collective", "devices_per_node")


def read_vidur(
    data: bytes, *, ranks: int | None = None, per_host: int | None = None, **_: Any
) -> Read:
    """Return the rows of a file, of which `ranks` and `per_host` select some, and warnings."""
    reader = csv.DictReader(StringIO(data.decode("utf-8-sig", errors="replace")))
    columns = reader.fieldnames or []
    for column in _NEEDED:
        if column not in columns:
            raise InvalidInputError("line 1", f"expected a column {column}, as Vidur writes it")
    found = Collected()
    try:
        for row in reader:
            where, collective = f"line {reader.line_num}", row["collective"] or ""
            if collective not in COLLECTIVES:
                found.leave(f"of {collective or 'no collective'}", where)
            elif row.get("rank") not in (None, "", "0"):
                found.leave("of ranks other than 0", where)
            else:
                timed = _row(row, collective, where)
                if ranks in (None, timed.ranks) and per_host in (None, timed.per_host):
                    found.add(timed)
    except csv.Error as error:
        raise InvalidInputError(f"line {reader.line_num}", f"no CSV: {error}") from None
    return found.read("no row that could be used")


def _row(row: Mapping[str, str | None], collective: Collective, where: str) -> TimedRow:
    count, each, size = (
        _whole(row[column], f"{where}, {column}")
        for column in ("num_workers", "devices_per_node", "size")
    )
    if count < 2 or not each or count % each:
        raise InvalidInputError(where, f"{count} ranks are not {each} a host")
    column = f"time_stats.{collective}.median"
    try:
        time = round(Decimal(row.get(column) or "") * 10**6)
    except (InvalidOperation, ValueError, OverflowError):
        raise InvalidInputError(
            f"{where}, {column}", f"expected ms, got {shown(row.get(column))}"
        ) from None
    whole = size if collective == "all_reduce" else size * count
    return TimedRow(collective, count, each, whole, time, where)


def _whole(text: str | None, path: str) -> int:
    if text is None or not text.strip().isdecimal():
        raise InvalidInputError(path, f"expected a whole number, got {shown(text)}")
    return int(text)
