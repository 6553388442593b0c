"""Reads the summary of DeepSpeed's communication logger (`deepspeed.comm.log_summary`).

The table has a row per operation and message size: count, total and average time. It says neither
the number of ranks nor how many share a host, and times of a job include waiting for other ranks.
With ``show_straggler=True`` a second table has times without this waiting, and is read instead.
The size of an all-gather is one rank's share, that of a reduce-scatter all that a rank holds;
planner counts the whole message of both. Averages are printed in 0.01 ms and leave out the largest
and smallest time; the total is more exact where both agree. A summary contains all earlier ones, so
the last one is read.

Complexity: O(characters). Source: deepspeed/utils/comms_logging.py and deepspeed/comm/utils.py.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any, NamedTuple

from planner.formats.importers.timed_rows import (
    Collected,
    Read,
    TimedRow,
    listed,
    printed_lines,
)
from planner.model.errors import InvalidInputError
from planner.model.measured import Collective
from planner.model.validation import MAX_VALUE, shown

HEADER = re.compile(r"Comm\. Op\s+Message Size\s+Count\b")  # the header of either table

_VARIANTS: Mapping[Collective, str] = {
    "all_reduce": "all_reduce all_reduce_coalesced inference_all_reduce",
    "all_gather": "all_gather all_gather_base all_gather_coalesced all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter reduce_scatter_base reduce_scatter_tensor",
}
_OPERATIONS = {name: kind for kind, names in _VARIANTS.items() for name in names.split()}
_COLUMN = re.compile(r"(?:Total|Avg) (?:[Ll]atency|comm lat|straggler)\(ms\)|\w+_avg \(Gbps\)")
_OPERATION = re.compile(r"([a-z]\w*)(\s*\|.*)?")
_ROW = re.compile(r"([0-9.]+) ?([A-Za-z]+)\s+(\S+)\s*(.*)")
_INDENTED = re.compile(r"\s{15,}\S")
_UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))}
_TOTAL, _AVERAGE = "Total Latency(ms)", "Avg Latency(ms)"
_TOTAL_ALONE, _AVERAGE_ALONE = "Total comm lat(ms)", "Avg comm lat(ms)"
_HALF = Decimal("0.005")  # half of the last printed digit

_LACKS = (
    "this is no measurement of a network alone: groups of all sizes are in it as one, sizes are "
    "rounded to two decimals and times to 0.01 ms; nccl-tests time the network alone"
)
_WAITING = (
    "the times hold how long a rank waited for the others: log_summary(show_straggler=True) prints "
    "them without"
)


class _Entry(NamedTuple):
    operation: str
    size: int
    calls: int
    cells: Mapping[str, Decimal]
    where: str


def read_deepspeed_comms(
    data: bytes, *, ranks: int | None = None, per_host: int | None = None, **_: Any
) -> Read:
    """Return the rows of a summary, and warnings about its limits.

    A summary names neither `ranks` nor `per_host`, so both have to be given.
    """
    tables = _tables(data.decode("utf-8", errors="replace"))
    plain = [table for table in tables if any(_AVERAGE in entry.cells for entry in table)]
    alone = [table for table in tables if any(_AVERAGE_ALONE in entry.cells for entry in table)]
    if not plain and not alone:
        raise InvalidInputError("", "no summary of DeepSpeed's communication logger")
    entries = (alone or plain)[-1]
    known = [entry for entry in entries if entry.operation in _OPERATIONS]
    others = sorted({entry.operation for entry in entries} - set(_OPERATIONS))
    if not known:
        raise InvalidInputError(
            "",
            f"of DeepSpeed's operations only {listed(others)}: a network is made of all_reduce, "
            "all_gather and reduce_scatter; time them with nccl-tests (planner import nccl-tests)",
        )
    if ranks is None or per_host is None:
        raise InvalidInputError(
            known[0].where,
            "among how many ranks, and how many share a host? A summary says neither: give --ranks "
            "and --ranks-per-host",
        )
    if ranks % per_host:
        raise InvalidInputError("--ranks-per-host", f"{ranks} ranks are not {per_host} a host")
    warnings = [_LACKS] if alone else [_LACKS, _WAITING]
    if len(plain) > 1:
        warnings.append(f"{len(plain)} summaries, each of all before it: the last is read")
    if others:
        warnings.append(f"left out, operations that no network has: {listed(others)}")
    found = Collected()
    for entry in known:
        kind = _OPERATIONS[entry.operation]
        size = entry.size * (ranks if kind == "all_gather" else 1)
        if size > MAX_VALUE:
            raise InvalidInputError(f"{entry.where}, column Message Size", "too large")
        if size:
            found.add(TimedRow(kind, ranks, per_host, size, _time(entry), entry.where))
        else:
            found.leave("of 0 bytes", entry.where)
    return found.read("no row that could be used", warnings)


def _tables(text: str) -> list[list[_Entry]]:
    tables: list[list[_Entry]] = []
    columns: list[str] = []
    operation = ""
    for where, line in printed_lines(text, HEADER, "Comm. Op"):
        own = line.strip()
        if HEADER.match(own):
            columns, operation = _COLUMN.findall(own), ""
            tables.append([])
        elif columns and (match := _OPERATION.fullmatch(own)):
            operation = match[1]
        elif operation and (match := _ROW.fullmatch(own)):
            tables[-1].append(_entry(operation, match, columns, where))
        elif operation and _INDENTED.match(line):
            raise InvalidInputError(
                f"{where}, column Message Size", f"expected bytes, got {shown(own)}"
            )
    return tables


def _entry(operation: str, match: re.Match[str], columns: list[str], where: str) -> _Entry:
    factor = _UNITS.get(match[2])
    size = _decimal(match[1])
    if factor is None or size is None:
        raise InvalidInputError(
            f"{where}, column Message Size", f"expected bytes, got {shown(match[1] + match[2])}"
        )
    count = int(match[3]) if match[3].isdecimal() and len(match[3]) < 19 else 0
    if not count:
        raise InvalidInputError(
            f"{where}, column Count", f"expected a number of calls, got {shown(match[3])}"
        )
    cells = match[4].split()
    numbers = {}
    for place, column in enumerate(columns):
        cell = cells[place] if place < len(cells) else ""
        number = _decimal(cell)
        if number is None:
            raise InvalidInputError(
                f"{where}, column {column}", f"expected a number, got {shown(cell)}"
            )
        numbers[column] = number
    if len(cells) > len(columns):
        raise InvalidInputError(
            where, f"{len(cells)} numbers behind the count, and the header names {len(columns)}"
        )
    whole = int((size * factor).to_integral_value(ROUND_HALF_EVEN))
    return _Entry(operation, whole, count, numbers, where)


def _decimal(cell: str) -> Decimal | None:
    try:
        number = Decimal(cell)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 and len(cell) < 40 else None


def _time(entry: _Entry) -> int:
    """Return the time of one call (ns)."""
    kinds = (_TOTAL_ALONE, _AVERAGE_ALONE) if _AVERAGE_ALONE in entry.cells else (_TOTAL, _AVERAGE)
    total, average = entry.cells.get(kinds[0], Decimal(0)), entry.cells[kinds[1]]
    exact = total / entry.calls
    agree = abs(exact - average) <= _HALF + _HALF / entry.calls
    return int(((exact if agree else average) * 10**6).to_integral_value(ROUND_HALF_EVEN))
