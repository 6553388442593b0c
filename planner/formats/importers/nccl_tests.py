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

from collections import Counter
from itertools import groupby

from planner.formats.importers.nccl_tables import ListedRank, Run, Side, Sides, rows_of
from planner.formats.importers.timed_rows import Collected, Read, TimedRow, bus_factor, listed
from planner.model.errors import InvalidInputError
from planner.model.measured import COLLECTIVES, Collective
from planner.model.units import counted

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
) -> Read:
    """Return the rows of a file, and warnings about rows that were left out.

    The file's `name` may name the test where the text does not. `ranks` and `per_host` are needed
    only if the file does not list its devices. Times out of place and in place never stand for each
    other. Ranks that cannot be those of one run are an `InvalidInputError`.
    """
    found = Collected()
    runs: list[Run] = []
    all_rows = rows_of(data.decode("utf-8", errors="replace"), name)
    for _, rows in groupby(all_rows, key=lambda row: id(row.run)):
        first = next(rows)
        test = first.run.collective or collective
        if test not in COLLECTIVES:
            for row in (first, *rows):
                found.leave(f"of {test or 'an unknown test (--collective says which)'}", row.where)
            continue
        kind: Collective = test
        count, each = _ranks(first.run, ranks, per_host, first.where)
        runs.append(first.run)
        for row in (first, *rows):
            size, side, reason = _chosen(row.read(), in_place=in_place)
            reason = reason or _doubt(side, size, float(bus_factor(kind, count)))
            if reason:
                found.leave(reason, row.where)
            else:
                time = round(side.time * 1000)
                found.add(TimedRow(kind, count, each, size, time, row.where))
    assumed = () if per_host or not found.rows or all(run.ranks for run in runs) else (ONE_HOST,)
    return found.read("no row of nccl-tests that could be used", assumed)


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
