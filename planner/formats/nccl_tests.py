"""Reads what nccl-tests print: ``all_reduce_perf``, ``all_gather_perf``, ``reduce_scatter_perf``.

Text: comment lines that name the test and each rank with its host, a header of columns, and a row a
size, out of place and in place: time in µs, bandwidth of the algorithm and of the bus in GB/s,
wrong elements. Launchers put a prefix before each line; other programs print lines between.
Several runs may follow each other. JSON, as ``-J`` writes it: the same in objects.

A row is left out, and said to be, if its time is 0, elements came out wrong, or its bandwidths are
not what its size, its time and the number of ranks say. Sizes of all three are those of the whole
message, as planner's are.

Complexity: O(lines). Source: src/common.cu and src/util.cu of NVIDIA/nccl-tests; the definition of
bus bandwidth in its doc/PERFORMANCE.md.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import isnan
from typing import Any

from planner.errors import InvalidInputError
from planner.formats.timed_rows import TimedRow, bus_factor, listed
from planner.measured import COLLECTIVES, Collective
from planner.validation import MAX_VALUE, shown

__all__ = ["read_nccl_tests"]

_PREFIX = re.compile(r"^\s*(\[[\d,]+\](<std(out|err)>)?:?\s?|\d+:\s)+")
_TEST = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|\w+)_perf")
_RANK = re.compile(r"^#?\s*Rank\s+(\d+)\s.*?\bPid\s+\d+\s+on\s+(\S+)\s+device")
_RUN = re.compile(r"^#?\s*nThread\s+(\d+)\s+nGpus\s+(\d+)\s")
_NUMBER = re.compile(r"^\d+$")
_TIMES = {"time", "cputime"}
_UNITS = ("(us)", "(GB/s)", "(GB/s)")

SLACK = 0.02
"""By how much printed bandwidths may be off what size and time say, beside their last digit."""


@dataclass
class _Run:
    """What is known of the run whose rows come next."""

    collective: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    gpus: int = 0


def read_nccl_tests(
    data: bytes,
    *,
    name: str = "",
    ranks: int | None = None,
    per_host: int | None = None,
    in_place: bool = False,
    collective: str | None = None,
) -> tuple[list[TimedRow], tuple[str, ...]]:
    """Return the rows of a file, and warnings about those that were left out.

    Parameters
    ----------
    data : bytes
        The text, or JSON.
    name : str
        Of the file: it may name the test where the text does not.
    ranks, per_host : int, optional
        Where the file does not list its devices: among how many ranks, and how many share a host.
    in_place : bool
        Whether to take the times in place; a row that has no such times gives the others.
    collective : str, optional
        What was timed, where neither the file nor its name says it.

    Raises
    ------
    InvalidInputError
        If there are no rows, or it is not said among how many ranks; the path is the line.
    """
    text = data.decode("utf-8", errors="replace")
    lines = _of_json(text) if text.lstrip().startswith("{") else _of_text(text, name)
    rows: list[TimedRow] = []
    left_out: dict[str, list[str]] = {}
    for run, where, size, sides in lines:
        test = run.collective or collective
        if test not in COLLECTIVES:
            other = test or "an unknown test (--collective says which)"
            left_out.setdefault(f"of {other}", []).append(where)
            continue
        kind: Collective = test
        count, each = _ranks(run, ranks, per_host, where)
        side = sides[1] if in_place and sides[1] is not None else sides[0] or sides[1]
        if side is None:
            left_out.setdefault("without a time", []).append(where)
            continue
        reason = _doubt(side, size, float(bus_factor(kind, count)))
        if reason:
            left_out.setdefault(reason, []).append(where)
            continue
        time = min(round(side[0] * 1000), MAX_VALUE)
        if not time:
            left_out.setdefault("with a time of 0", []).append(where)
            continue
        rows.append(TimedRow(kind, count, each, size, time, where))
    warnings = tuple(
        f"left out, {len(places)} row{'' if len(places) == 1 else 's'} {reason}: {listed(places)}"
        for reason, places in left_out.items()
    )
    if not rows:
        why = f" ({'; '.join(warnings)})" if warnings else ""
        raise InvalidInputError("", f"no row of nccl-tests that could be used{why}")
    return rows, warnings


_Side = tuple[float, float, float, float]
"""Time in µs, bandwidth of the algorithm and of the bus in GB/s, wrong elements."""

_Line = tuple[_Run, str, int, tuple[_Side | None, _Side | None]]


def _of_text(text: str, name: str) -> Iterator[_Line]:
    run = _Run(_collective(name))
    fresh = False  # whether something of the next run is known already
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _PREFIX.sub("", raw).strip()
        if "_perf" in line and (match := _TEST.search(line)):
            if run.columns:
                run, fresh = _Run(), True
            run.collective = match[1]
        if match := _RUN.match(line):
            if run.columns and not fresh:
                run = _Run(run.collective)
            fresh = False
            run.gpus = int(match[1]) * int(match[2])
        elif match := _RANK.match(line):
            run.hosts[int(match[1])] = match[2]
        elif "size" in line and "count" in line and _TIMES & set(line.split()):
            run.columns, fresh = tuple(line.lstrip("# ").split()), False
        elif run.columns and "(B)" in line:
            units = [unit for unit in line.split() if unit.startswith("(")]
            if any(tuple(units[at : at + 3]) != _UNITS for at in range(2, len(units) - 2, 3)):
                raise InvalidInputError(
                    f"line {number}", f"expected times in (us) and (GB/s), got {shown(line)}"
                )
        elif run.columns and line[:1].isdigit():
            cells = line.split()
            if _NUMBER.match(cells[0]) and len(cells) >= 8:
                yield run, f"line {number}", int(cells[0]), _sides(run.columns, cells)


def _sides(columns: Sequence[str], cells: Sequence[str]) -> tuple[_Side | None, _Side | None]:
    """Return the times out of place and in place of one row."""
    starts = [place for place, column in enumerate(columns) if column in _TIMES]
    # Some tests print no operation or root: what is missing is missing before the times.
    behind = max(len(columns) - len(cells), 0)
    times = [
        _side(cells[place - behind :], counted="#wrong" in columns)
        for place in starts
        if 0 < place - behind < len(cells)
    ]
    return (*times, None, None)[0], (*times, None, None)[1]


def _side(cells: Sequence[str], *, counted: bool) -> _Side | None:
    try:
        time, algorithm, bus = (float(Decimal(cell)) for cell in cells[:3])
        wrong = cells[3] if counted and len(cells) > 3 else "N/A"  # elder ones print an error
        return time, algorithm, bus, 0.0 if wrong == "N/A" else float(Decimal(wrong))
    except (InvalidOperation, ValueError):
        return None


def _of_json(text: str) -> Iterator[_Line]:
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInputError("", f"no JSON: {error}") from None
    config = _mapping(document.get("config"))
    devices = document.get("devices") or config.get("devices") or []
    arguments = document.get("args") or []
    run = _Run(_collective(str(arguments[0]) if isinstance(arguments, list) and arguments else ""))
    for device in devices if isinstance(devices, list) else []:
        known = _mapping(device)
        if isinstance(known.get("rank"), int):
            run.hosts[known["rank"]] = str(known.get("hostname"))
    counts = [config.get(key) for key in ("nthreads", "ngpus")]
    if all(isinstance(count, int) for count in counts):
        run.gpus = counts[0] * counts[1]  # type: ignore[operator]
    results = document.get("results")
    if not isinstance(results, list):
        raise InvalidInputError("results", "missing: expected a list, as nccl-tests -J writes it")
    for place, result in enumerate(results):
        row = _mapping(result)
        size = row.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InvalidInputError(f"results[{place}].size", f"expected bytes, got {shown(size)}")
        sides = [_json_side(row.get(key)) for key in ("out_of_place", "in_place")]
        yield run, f"results[{place}]", size, (sides[0], sides[1])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _json_side(value: Any) -> _Side | None:
    side = _mapping(value)
    numbers = [side.get("time", side.get("cpu_time")), side.get("alg_bw"), side.get("bus_bw")]
    wrong = side.get("nwrong")
    numbers.append(0 if wrong is None else wrong)
    if any(not isinstance(number, int | float) or isnan(number) for number in numbers):
        return None
    time, algorithm, bus, bad = (float(number) for number in numbers)
    return time, algorithm, bus, bad


def _collective(name: str) -> str:
    match = _TEST.search(name)
    if match:
        return match[1]
    return next((known for known in COLLECTIVES if known in name), "")


def _ranks(run: _Run, ranks: int | None, per_host: int | None, where: str) -> tuple[int, int]:
    """Return among how many ranks a run was, and how many of them share a host."""
    listed_ranks = len(run.hosts)
    if listed_ranks == 1 and run.gpus > 1:  # without MPI JSON lists the first device only
        listed_ranks = run.gpus
    count = listed_ranks or ranks or 0
    if ranks is not None and listed_ranks and ranks != listed_ranks:
        raise InvalidInputError(where, f"{listed_ranks} ranks are listed, and --ranks says {ranks}")
    if count < 2:
        listed = "one rank is listed" if count else "no ranks are listed"
        raise InvalidInputError(where, f"among how many ranks? {listed}: give --ranks")
    hosts = len(set(run.hosts.values()))
    each = per_host or (count // hosts if hosts and not count % hosts else None)
    if each is None:
        if hosts:
            raise InvalidInputError(where, f"{count} ranks on {hosts} hosts: expected as many each")
        each = count
    if count % each:
        raise InvalidInputError(where, f"{count} ranks are not {each} a host")
    return count, each


def _doubt(side: _Side, size: int, factor: float) -> str:
    """Return why a row cannot be true, or nothing."""
    time, algorithm, bus, wrong = side
    if wrong > 0:
        return "with wrong elements"
    if not time > 0:
        return "with a time of 0"
    right = size / time / 1000
    if abs(algorithm - right) > SLACK * right + 0.0051:
        return "whose bandwidth is not what size and time say"
    if abs(bus - algorithm * factor) > SLACK * bus + 0.02:
        return "whose bus bandwidth is not what its bandwidth and ranks say"
    return ""
