"""Reads the output of nccl-tests: ``all_reduce_perf`` and those of the two halves.

Text has comment lines that name the test and each rank with its host, a header of columns, and a
row per size, out of place and in place: time (µs), algorithm and bus bandwidth (GB/s), wrong
elements. Those out of place are read. A row belongs to the last header; only the last row of a
table may be unfinished, as after a run that was stopped. Launchers may put a prefix before each
line; other lines may stand between, and several runs may follow each other. JSON (``-J``) has the
same in objects. A row is left out, with a warning, if its size or time is 0, elements are wrong, it
lacks a time out of place, or its bandwidths contradict its size, time and ranks. A cell that cannot
be read is an error with its line and column. Sizes are those of the whole message, as planner's
are.

Complexity: O(characters). Source: src/common.cu and src/util.cu of NVIDIA/nccl-tests; the
definition of bus bandwidth in its doc/PERFORMANCE.md.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, NamedTuple

from msgspec import UNSET

from planner.formats.importers.timed_rows import (
    Collected,
    Read,
    TimedRow,
    bus_factor,
    listed,
    printed_lines,
)
from planner.jsonio.decoding import decode, typed
from planner.jsonio.network_measurements import NcclOutput, NcclResult
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective
from planner.model.units import counted
from planner.model.validation import MAX_VALUE, shown

_SLACK = 0.02
"""Allowed relative deviation of printed bandwidths from size / time, besides their last digit."""

_ONE_HOST = (
    "no hosts are listed: all ranks are taken to share one; --ranks-per-host says how many do"
)
HEADER = re.compile(r"(#\s*)?\bsize\s+count\s+type\b.*\b(cpu)?time\b")
"""The header of a table, from its own first character."""

_TEST = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|\w+)_perf")
_RANK = re.compile(
    r"^#?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?.*?\bPid\s+\d+\s+on\s+(\S+)\s+device"
)
_END = re.compile(r"^#?\s*(Out of bounds values|Avg bus bandwidth)\s*:")
_INTEGER = re.compile(r"[0-9]+")
_WORDS = {
    *("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double"),
    *("bfloat16", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2", "sum", "prod", "mulsum"),
}
"""Types and operations: even a damaged row has one of these words."""


class _Side(NamedTuple):
    """One measurement: time (µs), algorithm and bus bandwidth (GB/s), wrong elements."""

    time: float
    algorithm: float
    bus: float
    wrong: float


class _ListedRank(NamedTuple):
    """A rank as the output lists it."""

    number: int
    host: str
    group: str
    where: str


class _Row(NamedTuple):
    """A row, printed or of JSON, which is parsed only when needed."""

    where: str
    content: list[str] | NcclResult


@dataclass
class _Run:
    """A run: what is known of it, and its table."""

    collective: str = ""
    ranks: list[_ListedRank] = field(default_factory=list)
    gpus: int = 0
    header: str = ""  # the line of the header
    columns: list[str] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)
    ended: bool = False


def read_nccl_tests(
    data: bytes,
    *,
    name: str = "",
    ranks: int | None = None,
    per_host: int | None = None,
    collective: str | None = None,
) -> Read:
    """Return the rows of a file, and warnings about rows that were left out.

    The file's `name` may name the test where the text does not. `ranks` and `per_host` are needed
    only if the file does not list its devices. Ranks that cannot be those of one run are an
    `InvalidInputError`.
    """
    found = Collected()
    assumed: tuple[str, ...] = ()
    text = data.decode("utf-8", errors="replace")
    if text.lstrip().startswith("{") and not HEADER.search(text):  # a prefix may be a brace
        runs = [_of_json(text)]
    else:
        runs = [run for run in _tables(text, name) if run.rows]
    for run in runs:
        test = run.collective or collective
        if test not in COLLECTIVES:
            for row in run.rows:
                found.leave(f"of {test or 'an unknown test (--collective says which)'}", row.where)
            continue
        kind: Collective = test
        count, each = _ranks(run, ranks, per_host)
        if not (run.ranks or per_host):
            assumed = (_ONE_HOST,)
        for row in run.rows:
            chosen = _chosen(run, row, float(bus_factor(kind, count)))
            if isinstance(chosen, str):
                found.leave(chosen, row.where)
            else:
                found.add(TimedRow(kind, count, each, *chosen, row.where))
    return found.read("no row of nccl-tests that could be used", assumed if found.rows else ())


def _chosen(run: _Run, row: _Row, factor: float) -> tuple[int, int] | str:
    """Return a row's size and time (ns), or the reason why it cannot be used."""
    if isinstance(row.content, NcclResult):
        size, side = row.content.size, _of_result(row.content, row.where)
    elif len(row.content) < len(run.columns) and row is run.rows[-1]:
        return "without its last columns"
    else:
        size, side = _of_cells(run, row.content, row.where)
    if not size:
        return "of 0 bytes"
    if side is None:
        return "without a time out of place"
    return _doubt(side, size, factor) or (size, round(side.time * 1000))


def _ranks(run: _Run, ranks: int | None, per_host: int | None) -> tuple[int, int]:
    """Return the number of ranks of a run, and of ranks per host."""
    where = run.rows[0].where
    _check_listed(run.ranks)
    hosts = Counter(rank.host for rank in run.ranks)
    listed_ranks = len(run.ranks)
    if listed_ranks == 1 and run.gpus > 1:  # without MPI JSON lists the first device only
        listed_ranks = run.gpus
        hosts = Counter({run.ranks[0].host: listed_ranks})
    if listed_ranks == 1:
        raise InvalidInputError(
            run.ranks[0].where,
            "one rank is listed, and a collective is among two or more: nccl-tests that are built "
            "without MPI=1 run each process on its own",
        )
    count = listed_ranks or ranks or 0
    if ranks is not None and listed_ranks and ranks != listed_ranks:
        raise InvalidInputError(where, f"{listed_ranks} ranks are listed, and --ranks says {ranks}")
    if count < 2:
        raise InvalidInputError(where, "among how many ranks? no ranks are listed: give --ranks")
    shared = set(hosts.values())
    if per_host is None and len(shared) > 1:
        names = listed([f"{host}: {number}" for host, number in hosts.items()])
        raise InvalidInputError(
            where,
            f"hosts have different numbers of ranks ({names}): expected as many each; where the "
            "names are those of containers, --ranks-per-host says how many ranks share a machine",
        )
    if per_host is not None and max(shared, default=0) > per_host:
        host, most = hosts.most_common(1)[0]
        raise InvalidInputError(
            where, f"{most} ranks are listed on {host}, and --ranks-per-host says {per_host}"
        )
    each = per_host or max(shared, default=count)
    if count % each:
        raise InvalidInputError(where, f"{count} ranks are not {each} a host")
    return count, each


def _check_listed(ranks: list[_ListedRank]) -> None:
    """Refuse listed ranks that are not those of one run."""
    seen: dict[int, _ListedRank] = {}
    for rank in ranks:
        before = seen.setdefault(rank.number, rank)
        if before is not rank:
            raise InvalidInputError(
                rank.where,
                f"rank {rank.number} is listed twice, on {rank.host} and, at {before.where}, on "
                f"{before.host}: these are processes that ran on their own (nccl-tests are built "
                "without MPI=1), or outputs that are mixed: give the lines of one run",
            )
    missing = [str(number) for number in range(len(ranks)) if number not in seen]
    if missing:
        raise InvalidInputError(
            ranks[-1].where,
            f"{counted(len(ranks), 'rank')} listed up to {max(seen)}, and not rank "
            f"{listed(missing)}: expected a line for each",
        )
    groups = sorted({rank.group for rank in ranks})
    if len(groups) > 1:
        raise InvalidInputError(
            ranks[-1].where,
            f"ranks are split into {len(groups)} groups that communicate at the same time "
            "(NCCL_TESTS_SPLIT): their times are not those of one collective; run without it",
        )


def _doubt(side: _Side, size: int, factor: float) -> str:
    """Return the reason why a row is implausible, or an empty string."""
    time, algorithm, bus, wrong = side
    if wrong > 0:
        return "with wrong elements"
    if not time > 0:
        return "with a time of 0"
    right = size / time / 1000
    if not abs(algorithm - right) <= _SLACK * right + 0.0051:
        return "whose bandwidth is not what size and time say"
    if not abs(bus - algorithm * factor) <= _SLACK * bus + 0.02:
        return "whose bus bandwidth is not what its bandwidth and ranks say"
    return ""


# ---
# The tables, text or JSON: rows, with what is known of their runs.


def _of_cells(run: _Run, cells: Sequence[str], where: str) -> tuple[int, _Side | None]:
    """Return the size of a printed row and its measurement out of place."""
    columns = run.columns
    names = f"the header on {run.header} names {len(columns)} columns"

    def wrong(place: int, message: str) -> InvalidInputError:
        return InvalidInputError(f"{where}, column {columns[place]}", message)

    if not _INTEGER.fullmatch(cells[0]) or int(cells[0]) > MAX_VALUE:
        raise wrong(0, f"expected bytes, got {shown(cells[0])}")
    if len(cells) > len(columns) and columns[-1] != "timestamp":
        raise InvalidInputError(where, f"{len(cells)} cells, and {names}")
    if len(cells) < len(columns):
        what = f"no value: {len(cells)} cells, and {names}: correct the line, or remove it"
        raise wrong(len(cells), what)
    size, start = int(cells[0]), columns.index("time")
    behind = columns[start + 3 : start + 4]
    ends = start + (4 if behind and behind[0] in ("#wrong", "error") else 3)
    if not size or all(cell == "N/A" for cell in cells[start:ends]):
        return size, None
    numbers = []
    for place in range(start, ends):
        cell = cells[place]
        number = 0.0 if cell == "N/A" and place == start + 3 else _number(cell)
        if number is None or (place == start and not isfinite(number)):
            raise wrong(place, f"expected a number, got {shown(cell)}: correct or remove it")
        numbers.append(number)
    time, algorithm, bus, *errors = numbers
    # Older tests print the largest error, which is rarely 0, instead of the number of errors.
    return size, _Side(time, algorithm, bus, errors[0] if behind == ["#wrong"] else 0.0)


def _of_result(result: NcclResult, where: str) -> _Side | None:
    """Return the out-of-place measurement of a JSON row."""
    side = result.out_of_place
    if side is None or not result.size:
        return None
    if side.time is UNSET or not isfinite(side.time):
        raise InvalidInputError(f"{where}.out_of_place.time", "expected a number")
    return _Side(side.time, float(side.alg_bw), float(side.bus_bw), float(side.nwrong or 0))


def _test_of(name: str) -> str:
    """Return the test that a text names: a program, or a file named after a collective."""
    match = _TEST.search(name)
    if match:
        return match[1]
    return next((known for known in COLLECTIVES if known in name), "")


def _tables(text: str, name: str) -> list[_Run]:
    """Return the runs of a printed output; a malformed header is an `InvalidInputError`."""
    tables: list[_Run] = []
    run = _Run(_test_of(name))  # of the header that comes next
    for where, line in printed_lines(text, HEADER, "busbw"):
        own = line.strip()
        if "_perf" in own and (match := _TEST.search(own)):
            run.collective = match[1]
        if "Rank" in own and (match := _RANK.match(own)):
            run.ranks.append(_ListedRank(int(match[1]), match[3], match[2] or "", where))
        elif "busbw" in own and HEADER.match(own):
            if tables and not run.ranks:
                run.ranks = tables[-1].ranks
            run.header, run.columns = where, _columns(where, own)
            tables.append(run)
            run = _Run(run.collective)
        elif tables and _END.match(own):
            tables[-1].ended = True
        elif tables and not own.startswith("#"):
            cells = own.split()
            if _is_row(cells, inside=not tables[-1].ended):
                tables[-1].rows.append(_Row(where, cells))
    return tables


def _columns(where: str, header: str) -> list[str]:
    """Return the columns of a header."""
    columns = re.sub(r"^#(?!wrong)", "", header).split()
    sides = [column for column in columns if column in ("time", "algbw", "busbw")]
    if sides not in (["time", "algbw", "busbw"], ["time", "algbw", "busbw"] * 2):
        raise InvalidInputError(
            where,
            f"expected the columns time, algbw and busbw, once or twice, got {shown(header)}",
        )
    return columns


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


def _of_json(text: str) -> _Run:
    document = typed(decode(text), NcclOutput)
    config, arguments = _mapping(document.config), document.args
    key = "devices" if document.devices else "config.devices"
    devices = document.devices or config.get("devices")
    run = _Run(_test_of(str(arguments[0]) if isinstance(arguments, list) and arguments else ""))
    for place, device in enumerate(devices if isinstance(devices, list) else []):
        known = _mapping(device)
        if isinstance(known.get("rank"), int):
            host, group = str(known.get("hostname")), str(known.get("group", ""))
            run.ranks.append(_ListedRank(known["rank"], host, group, f"{key}[{place}]"))
    threads, gpus = config.get("nthreads"), config.get("ngpus")
    if isinstance(threads, int) and isinstance(gpus, int):
        run.gpus = threads * gpus
    run.rows = [_Row(f"results[{place}]", row) for place, row in enumerate(document.results)]
    return run


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
