"""Reads the output of nccl-tests: ``all_reduce_perf`` and those of the two halves.

Text has comment lines that name the test and each rank with its host, a header of columns, and a
row per size, out of place and in place: time (µs), algorithm and bus bandwidth (GB/s), wrong
elements. Launchers may put a prefix before each line (`planner.formats.importers.launchers`); other
lines may stand between, and several runs may follow each other. JSON (``-J``) has the same in
objects. A row is left out, with a warning, if its size or time is 0, elements are wrong, it lacks
the requested kind of time, or its bandwidths contradict its size, time and ranks. A cell that
cannot be read is an error. Sizes are those of the whole message, as planner's are. Complexity:
O(characters). Source: src/common.cu and src/util.cu of NVIDIA/nccl-tests; the definition of bus
bandwidth in its doc/PERFORMANCE.md.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from math import isfinite, nan
from typing import Any

from planner.formats.importers.nccl_tables import (
    CPU_TIMES,
    HEADER,
    ListedRank,
    Row,
    Run,
    Side,
    Sides,
    rows_of,
    test_of,
)
from planner.formats.importers.timed_rows import TimedRow, bus_factor, listed
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective
from planner.model.units import counted
from planner.model.validation import MAX_VALUE, shown

SLACK = 0.02
"""Allowed relative deviation of printed bandwidths from size / time, besides their last digit."""

ONE_HOST = (
    "no hosts are listed: all ranks are taken to share one; --ranks-per-host says how many do"
)


def read_nccl_tests(
    data: bytes,
    *,
    name: str = "",
    ranks: int | None = None,
    per_host: int | None = None,
    in_place: bool = False,
    collective: str | None = None,
) -> tuple[list[TimedRow], tuple[str, ...]]:
    """Return the rows of a file, and warnings about rows that were left out.

    The file's `name` may name the test where the text does not. `ranks` and `per_host` are needed
    only if the file does not list its devices. Times out of place and in place never stand for each
    other. Ranks that cannot be those of one run are an `InvalidInputError`.
    """
    text = data.decode("utf-8", errors="replace")
    printed = not text.lstrip().startswith("{") or HEADER.search(text)  # a prefix may be a brace
    found = rows_of(text, name) if printed else _of_json(text)
    rows: list[TimedRow] = []
    left_out: dict[str, list[str]] = {}
    known: tuple[Run, int, int] | None = None
    runs: list[Run] = []
    for run, where, read in found:
        test = run.collective or collective
        if test not in COLLECTIVES:
            other = test or "an unknown test (--collective says which)"
            left_out.setdefault(f"of {other}", []).append(where)
            continue
        kind: Collective = test
        if known is None or known[0] is not run:
            known = run, *_ranks(run, ranks, per_host, where)
            runs.append(run)
        _, count, each = known
        size, side, reason = _chosen(read(), in_place=in_place)
        reason = reason or _doubt(side, size, float(bus_factor(kind, count)))
        time = min(round(side.time * 1000), MAX_VALUE)
        if not reason and not time:
            reason = "with a time of 0"
        if reason:
            left_out.setdefault(reason, []).append(where)
            continue
        rows.append(TimedRow(kind, count, each, size, time, where))
    assumed = () if per_host or not rows or all(run.ranks for run in runs) else (ONE_HOST,)
    warnings = assumed + tuple(
        f"left out, {len(places)} row{'' if len(places) == 1 else 's'} {reason}: {listed(places)}"
        for reason, places in left_out.items()
    )
    if not rows:
        why = f" ({'; '.join(warnings)})" if warnings else ""
        raise InvalidInputError("", f"no row of nccl-tests that could be used{why}")
    return rows, warnings


_NONE = Side(0, 0, 0, 0)


def _chosen(row: tuple[int, Sides] | None, *, in_place: bool) -> tuple[int, Side, str]:
    """Return a row's size and the requested measurement, or the reason why it has none."""
    if row is None:
        return 0, _NONE, "without its last columns"
    size, sides = row
    if not size:
        return 0, _NONE, "of 0 bytes"
    side, other = sides[::-1] if in_place else sides
    if side is not None:
        return size, side, ""
    if other is None:
        return size, _NONE, "without a time"
    if in_place:
        return size, _NONE, "without a time in place (without --in-place: the others)"
    return size, _NONE, "without a time out of place (--in-place takes the others)"


def _of_json(text: str) -> Iterator[Row]:
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInputError("", f"no JSON: {error}") from None
    config = _mapping(document.get("config"))
    key = "devices" if document.get("devices") else "config.devices"
    devices = document.get("devices") or config.get("devices") or []
    arguments = document.get("args") or []
    run = Run(test_of(str(arguments[0]) if isinstance(arguments, list) and arguments else ""))
    for place, device in enumerate(devices if isinstance(devices, list) else []):
        known = _mapping(device)
        if isinstance(known.get("rank"), int):
            host, group = str(known.get("hostname")), str(known.get("group", ""))
            run.ranks.append(ListedRank(known["rank"], host, group, f"{key}[{place}]"))
    counts = [config.get(key) for key in ("nthreads", "ngpus")]
    if all(isinstance(count, int) for count in counts):
        run.gpus = counts[0] * counts[1]  # type: ignore[operator]
    results = document.get("results")
    if not isinstance(results, list):
        raise InvalidInputError("results", "missing: expected a list, as nccl-tests -J writes it")
    for place, result in enumerate(results):
        row, where = _mapping(result), f"results[{place}]"
        size = row.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_VALUE:
            raise InvalidInputError(f"{where}.size", f"expected bytes, got {shown(size)}")

        def read(
            row: Mapping[str, Any] = row, size: int = size, where: str = where
        ) -> tuple[int, Sides]:
            if not size:
                return size, (None, None)
            out_of_place, in_place = (
                _json_side(row.get(key), f"{where}.{key}") for key in ("out_of_place", "in_place")
            )
            return size, (out_of_place, in_place)

        yield Row(run, where, read)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _json_side(value: Any, where: str) -> Side | None:
    """Return one measurement of a JSON row, or None."""
    if value is None:
        return None
    side = _mapping(value)
    if "cpu_time" in side:
        raise InvalidInputError(f"{where}.cpu_time", CPU_TIMES)
    time, *others = (
        _json_number(side.get(key), f"{where}.{key}") for key in ("time", "alg_bw", "bus_bw")
    )
    if not isfinite(time):
        raise InvalidInputError(f"{where}.time", f"expected a number, got {time}")
    wrong = side.get("nwrong")
    counted_wrong = 0.0 if wrong is None else _json_number(wrong, f"{where}.nwrong")
    return Side(time, others[0], others[1], counted_wrong)


def _json_number(value: Any, where: str) -> float:
    if value == "nan":  # nccl-tests write a missing number so
        return nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInputError(where, f"expected a number, got {shown(value)}")
    return float(value)


def _ranks(run: Run, ranks: int | None, per_host: int | None, where: str) -> tuple[int, int]:
    """Return the number of ranks of a run, and of ranks per host."""
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


def _check_listed(ranks: list[ListedRank]) -> None:
    """Refuse listed ranks that are not those of one run."""
    seen: dict[int, ListedRank] = {}
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


def _doubt(side: Side, size: int, factor: float) -> str:
    """Return the reason why a row is implausible, or an empty string."""
    time, algorithm, bus, wrong = side
    if wrong > 0:
        return "with wrong elements"
    if not time > 0:
        return "with a time of 0"
    right = size / time / 1000
    if not abs(algorithm - right) <= SLACK * right + 0.0051:
        return "whose bandwidth is not what size and time say"
    if not abs(bus - algorithm * factor) <= SLACK * bus + 0.02:
        return "whose bus bandwidth is not what its bandwidth and ranks say"
    return ""
