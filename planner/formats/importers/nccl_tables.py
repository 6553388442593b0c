"""The tables of nccl-tests, text or JSON, as rows with what is known of their runs.

In text a run is described before a header: the test, and each rank with its host. A row belongs to
the last header. A cell that cannot be read is an error with its line and column. Only the last row
of a table may be unfinished, as after a run that was stopped. JSON (``-J``) has objects of the
same.

Complexity: O(characters). Source: src/util.cu of NVIDIA/nccl-tests, and src/common.cu before 2.17.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, NamedTuple

from msgspec import UNSET

from planner.formats.importers.launchers import PrintedLine, printed_lines
from planner.jsonio.decoding import decode, typed
from planner.jsonio.network_measurements import NcclOutput, NcclResult, NcclSide
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES
from planner.model.validation import MAX_VALUE, shown

_HEADER = re.compile(r"(#\s*)?\bsize\s+count\s+type\b.*\b(cpu)?time\b")
"""The header of a table, from its own first character."""

_LIKE_A_HEADER = re.compile(r"\btime\b.*\balgbw\b.*\bbusbw\b")
_TEST = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|\w+)_perf")
_RANK = re.compile(
    r"^#?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?.*?\bPid\s+\d+\s+on\s+(\S+)\s+device"
)
_THREADS = re.compile(r"^#?\s*nThread\s+(\d+)\s+nGpus\s+(\d+)\s")
_END = re.compile(r"^#?\s*(Out of bounds values|Avg bus bandwidth)\s*:")
_CELL = re.compile(r"\S+")
_INTEGER = re.compile(r"[0-9]+")
_NO_PART_OF_A_CELL = re.compile(r"[^\w.+\-\s]")
_WORDS = {
    *("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double"),
    *("bfloat16", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2", "sum", "prod", "mulsum"),
}
"""Types and operations: every row has one, whatever else is damaged."""
_TIMES = ("time", "cputime")
_UNITS = {"time": "(us)", "cputime": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)"}
_WITHOUT_UNIT = ("type", "redop", "root", "#wrong", "error", "timestamp")
_CPU_TIMES = (
    "these are the times in which a CPU launches, not those of transfers: run nccl-tests without -C"
)
_ALIGNED = 2
"""Largest offset between the end of a cell and the end of its column's name (characters)."""


class Side(NamedTuple):
    """One measurement: time (µs), algorithm and bus bandwidth (GB/s), wrong elements."""

    time: float
    algorithm: float
    bus: float
    wrong: float


Sides = tuple[Side | None, Side | None]  # measurements out of place and in place


class ListedRank(NamedTuple):
    """A rank as the output lists it."""

    number: int
    host: str
    group: str
    where: str


@dataclass
class Run:
    """What is known of the run whose rows follow."""

    collective: str = ""
    ranks: list[ListedRank] = field(default_factory=list)
    gpus: int = 0


@dataclass
class _Table:
    run: Run
    header: PrintedLine
    columns: list[str]
    ends: list[int]
    rows: list["TextRow"] = field(default_factory=list)
    ended: bool = False


class TextRow(NamedTuple):
    """A row of a printed table; it is read only if wanted."""

    table: _Table
    line: PrintedLine
    cells: list[str]

    @property
    def run(self) -> Run:
        """The run that it belongs to."""
        return self.table.run

    @property
    def where(self) -> str:
        """Its line."""
        return f"line {self.line.number}"

    def read(self) -> tuple[int, Sides] | None:
        """Return its size and measurements; None if the row is unfinished."""
        columns, cells = self.table.columns, self.cells
        names = f"the header on line {self.table.header.number} names {len(columns)} columns"
        if not _INTEGER.fullmatch(cells[0]) or int(cells[0]) > MAX_VALUE:
            raise self._wrong(0, f"expected bytes, got {shown(cells[0])}{self._behind()}")
        if len(cells) > len(columns) and columns[-1] != "timestamp":
            raise InvalidInputError(self.where, f"{len(cells)} cells, and {names}{self._behind()}")
        missing = self._missing()
        if missing < len(columns) and self is self.table.rows[-1] and missing == len(cells):
            return None
        if missing < len(columns):
            what = f"no value: {len(cells)} cells, and {names}: correct the line, or remove it"
            raise self._wrong(missing, what)
        size = int(cells[0])
        if not size:
            return size, (None, None)
        starts = [place for place, column in enumerate(columns) if column in _TIMES]
        if "cputime" in columns:
            raise self._wrong(starts[0], _CPU_TIMES)
        sides = [self._side(start) for start in starts]
        return size, ((*sides, None, None)[0], (*sides, None, None)[1])

    def _side(self, start: int) -> Side | None:
        """Return the measurement whose time is in column `start`, or None."""
        behind = self.table.columns[start + 3 : start + 4]
        ends = start + (4 if behind and behind[0] in ("#wrong", "error") else 3)
        if all(cell == "N/A" for cell in self.cells[start:ends]):
            return None
        numbers = []
        for place in range(start, ends):
            cell = self.cells[place]
            number = 0.0 if cell == "N/A" and place == start + 3 else _number(cell)
            if number is None or (place == start and not isfinite(number)):
                what = f"expected a number, got {shown(cell)}: correct or remove it"
                raise self._wrong(place, what)
            numbers.append(number)
        time, algorithm, bus, *wrong = numbers
        # Older tests print the largest error, which is rarely 0, instead of the number of errors.
        return Side(time, algorithm, bus, wrong[0] if behind == ["#wrong"] else 0.0)

    def _missing(self) -> int:
        """Return the first column without a cell, or the number of columns.

        Cells end where their column names end; otherwise the last ones are missing.
        """
        columns, cells = self.table.columns, self.cells
        if len(cells) >= len(columns):
            return len(columns)
        ends = [match.end() for match in _CELL.finditer(self.line.text)]
        without = [
            place
            for place, column_end in enumerate(self.table.ends)
            if all(abs(column_end - end) > _ALIGNED for end in ends)
        ]
        return without[0] if len(without) == len(columns) - len(cells) else len(cells)

    def _wrong(self, place: int, message: str) -> InvalidInputError:
        columns = self.table.columns
        kind = " (in place)" if sum(name in _TIMES for name in columns[: place + 1]) > 1 else ""
        return InvalidInputError(f"{self.where}, column {columns[place]}{kind}", message)

    def _behind(self) -> str:
        """Return a hint if the header has a prefix that this line lacks."""
        before = self.table.header.prefix
        if not before or self.line.prefix:
            return ""
        return (
            f": {shown(before)} stands before `size` there, and not before this row: remove it if "
            "it is a launcher's, and the column if it is one"
        )


class JsonRow(NamedTuple):
    """A row of JSON; it is read only if wanted."""

    run: Run
    where: str
    result: NcclResult

    def read(self) -> tuple[int, Sides]:
        """Return its size and measurements."""
        size = self.result.size
        out, in_place = (self._side(key) if size else None for key in ("out_of_place", "in_place"))
        return size, (out, in_place)

    def _side(self, key: str) -> Side | None:
        side: NcclSide | None = getattr(self.result, key)
        if side is None:
            return None
        if side.cpu_time is not None:
            raise InvalidInputError(f"{self.where}.{key}.cpu_time", _CPU_TIMES)
        if side.time is UNSET or not isfinite(side.time):
            raise InvalidInputError(f"{self.where}.{key}.time", "expected a number")
        return Side(side.time, float(side.alg_bw), float(side.bus_bw), float(side.nwrong or 0))


def rows_of(text: str, name: str) -> Iterator[TextRow | JsonRow]:
    """Yield the rows of an output; the file's `name` may name the test where the text does not.

    A malformed table is an `InvalidInputError`.
    """
    if text.lstrip().startswith("{") and not _HEADER.search(text):  # a prefix may be a brace
        yield from _of_json(text)
        return
    for table in _tables(text, name):
        yield from table.rows


def _test_of(name: str) -> str:
    """Return the test that a text names: a program, or a file named after a collective."""
    match = _TEST.search(name)
    if match:
        return match[1]
    return next((known for known in COLLECTIVES if known in name), "")


def _tables(text: str, name: str) -> list[_Table]:
    tables: list[_Table] = []
    run, named = Run(_test_of(name)), False  # of the header that comes next
    doubtful = ""
    for line in printed_lines(text, _HEADER, "busbw"):
        own = line.text.strip()
        if "_perf" in own and (match := _TEST.search(own)):
            run.collective = match[1]
        if "nThread" in own and (match := _THREADS.match(own)):
            run.gpus, named = int(match[1]) * int(match[2]), True
        elif "Rank" in own and (match := _RANK.match(own)):
            where = f"line {line.number}"
            run.ranks.append(ListedRank(int(match[1]), match[3], match[2] or "", where))
            named = True
        elif "busbw" in own and _HEADER.match(own):
            if tables and not named:
                run.ranks, run.gpus = tables[-1].run.ranks, tables[-1].run.gpus
            tables.append(_table(run, line))
            run, named = Run(run.collective), False
        elif tables and own.lstrip("# ").startswith("(B)"):
            _check_units(tables[-1], line)
        elif tables and _END.match(own):
            tables[-1].ended = True
        elif not own.startswith("#") and _is_row(
            cells := _cells(line), inside=bool(tables) and not tables[-1].ended
        ):
            if tables:
                tables[-1].rows.append(TextRow(tables[-1], line, cells))
            else:
                doubtful = doubtful or f"line {line.number} looks like a row before any header"
        elif "busbw" in own and _LIKE_A_HEADER.search(own):
            doubtful = f"line {line.number} looks like a header: {shown(own)}"
    if not tables and doubtful:
        raise InvalidInputError(
            "",
            f"no table of nccl-tests ({doubtful}): expected a header of columns that begins with "
            "size, count, type, and rows behind it",
        )
    return tables


def _table(run: Run, line: PrintedLine) -> _Table:
    """Return an empty table with the columns of a header."""
    text = re.sub(r"^(\s*)#(?!wrong)", r"\1 ", line.text)
    found = list(_CELL.finditer(text))
    columns = [match[0] for match in found]
    sides = [column for column in columns if column in (*_TIMES, "algbw", "busbw")]
    times = [column for column in sides if column in _TIMES]
    if len(times) > 2 or sides != [name for time in times for name in (time, "algbw", "busbw")]:
        raise InvalidInputError(
            f"line {line.number}",
            "expected the columns time, algbw and busbw, once or twice, got "
            f"{shown(line.text.strip())}",
        )
    return _Table(run, line, columns, [match.end() for match in found])


def _check_units(table: _Table, line: PrintedLine) -> None:
    columns = [column for column in table.columns if column not in _WITHOUT_UNIT]
    units = [unit for unit in line.text.split() if unit.startswith("(")]
    if len(columns) != len(units) or any(
        _UNITS.get(column, unit) != unit for column, unit in zip(columns, units, strict=True)
    ):
        raise InvalidInputError(
            f"line {line.number}",
            f"expected times in (us) and bandwidths in (GB/s), got {shown(line.text.strip())}",
        )


def _cells(line: PrintedLine) -> list[str]:
    """Return a row's cells without launchers' tags between them.

    A launcher tags each piece that a process writes at once, which may be less than a line. A tag
    is removed only if it is certain: it is the prefix of this line, and not part of a cell.
    """
    text = line.text
    if _NO_PART_OF_A_CELL.search(line.prefix):
        text = text.replace(line.prefix, " ")
    return text.split()


def _is_row(cells: Sequence[str], *, inside: bool) -> bool:
    """Return whether a line is meant as a row, possibly with damaged cells.

    Between a header and the end of its table, the first cells of a row are enough.
    """
    whole = all(_INTEGER.fullmatch(cell) for cell in cells[:2])
    if len(cells) < 3:
        return inside and bool(cells) and whole
    if whole and (cells[2] in _WORDS or (cells[2][0].isalpha() and (inside or len(cells) >= 8))):
        return True
    return not _WORDS.isdisjoint(cells) and sum(_number(cell) is not None for cell in cells) >= 4


def _number(cell: str) -> float | None:
    try:
        return float(Decimal(cell))
    except (InvalidOperation, ValueError):
        return None


def _of_json(text: str) -> Iterator[JsonRow]:
    document = typed(decode(text), NcclOutput)
    config, arguments = _mapping(document.config), document.args
    key = "devices" if document.devices else "config.devices"
    devices = document.devices or config.get("devices")
    run = Run(_test_of(str(arguments[0]) if isinstance(arguments, list) and arguments else ""))
    for place, device in enumerate(devices if isinstance(devices, list) else []):
        known = _mapping(device)
        if isinstance(known.get("rank"), int):
            host, group = str(known.get("hostname")), str(known.get("group", ""))
            run.ranks.append(ListedRank(known["rank"], host, group, f"{key}[{place}]"))
    threads, gpus = config.get("nthreads"), config.get("ngpus")
    if isinstance(threads, int) and isinstance(gpus, int):
        run.gpus = threads * gpus
    for place, result in enumerate(document.results):
        yield JsonRow(run, f"results[{place}]", result)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
