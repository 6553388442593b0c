"""Reads the tables of collectives that Vidur's profiler writes as CSV.

Columns are ``time_stats.NAME.median`` (ms), ``num_workers``, ``devices_per_node``, ``collective``
and ``size`` (bytes). The size is that of a rank's input buffer, for an all-gather a rank's share;
for a reduce-scatter it is that of the output. Rows of ranks other than 0 repeat those of rank 0.

Complexity: O(rows). Source: Agrawal et al., "Vidur", MLSys 2024; vidur/profiling/collectives of
microsoft/vidur.
"""

import csv
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from io import StringIO

from planner.formats.importers.timed_rows import TimedRow, listed
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective
from planner.model.validation import MAX_VALUE, shown

_NEEDED = ("num_workers", "size", "collective", "devices_per_node")


def read_vidur(
    data: bytes,
    *,
    name: str = "",
    ranks: int | None = None,
    per_host: int | None = None,
    in_place: bool = False,
    collective: str | None = None,
) -> tuple[list[TimedRow], tuple[str, ...]]:
    """Return the rows of a file, and warnings about rows that were left out.

    `ranks` and `per_host` select rows; `name`, `in_place` and `collective` are not needed here.
    """
    del name, in_place, collective
    reader = csv.DictReader(StringIO(data.decode("utf-8-sig", errors="replace")))
    columns = reader.fieldnames or []
    for column in _NEEDED:
        if column not in columns:
            raise InvalidInputError("line 1", f"expected a column {column}, as Vidur writes it")
    rows: list[TimedRow] = []
    left_out: dict[str, list[str]] = {}
    try:
        for row in reader:
            where = f"line {reader.line_num}"
            kept = _row(row, where, left_out)
            if kept and ranks in (None, kept.ranks) and per_host in (None, kept.per_host):
                rows.append(kept)
    except csv.Error as error:
        raise InvalidInputError(f"line {reader.line_num}", f"no CSV: {error}") from None
    warnings = tuple(
        f"left out, {len(places)} row{'' if len(places) == 1 else 's'} {reason}: {listed(places)}"
        for reason, places in left_out.items()
    )
    if not rows:
        raise InvalidInputError("", f"no row that could be used ({'; '.join(warnings) or 'empty'})")
    return rows, warnings


def _row(
    row: Mapping[str, str | None], where: str, left_out: dict[str, list[str]]
) -> TimedRow | None:
    collective = row["collective"] or ""
    if collective not in COLLECTIVES:
        left_out.setdefault(f"of {collective or 'no collective'}", []).append(where)
        return None
    if row.get("rank") not in (None, "", "0"):
        left_out.setdefault("of ranks other than 0", []).append(where)
        return None
    kind: Collective = collective
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
    if not 0 < time <= MAX_VALUE:
        left_out.setdefault("with a time of 0" if not time else "out of range", []).append(where)
        return None
    whole = size if collective == "all_reduce" else size * count
    return TimedRow(kind, count, each, whole, time, where)


def _whole(text: str | None, path: str) -> int:
    if text is None or not text.strip().isdecimal():
        raise InvalidInputError(path, f"expected a whole number, got {shown(text)}")
    return int(text)
