"""Attributes the waiting of computation to transfers and to causes.

Problem: while a transfer runs and nothing is computed, computation waits. For which transfer, and
why? Method: each such moment counts for the earliest-started running transfer, within steps only.
Its wait is divided in the order of `CAUSES`; each cause takes at most what is left. What each cause
means: docs/traces.md, "How a wait is divided among its causes".
Guarantee: the causes of a wait sum to it. All waits of a step sum to its exposed communication, so
none exceeds the step. No result depends on how the clocks of different ranks are set.
Complexity: O(n log n). Source: own; collectives are aligned by their ends, as in trace analysis
with unsynchronised clocks.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import attrgetter

from planner.model.costs import AffineCost, lower_lines
from planner.traces.recorded import (
    Recorded,
    Spans,
    Transfer,
    both,
    clipped,
    length,
    merged,
    periods_of,
    without,
)

CAUSES = ("input", "host", "straggler", "slow", "startup", "late", "large", "bytes", "undivided")


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of one rank for one transfer (ns), divided by cause."""

    rank: int
    transfer: Transfer
    waited_ns: int
    causes: Mapping[str, int]
    last_rank: int | None = None  # the rank that came last; None if only one was recorded
    step: int = -1  # position in `Recorded.steps`; -1: unknown


def one_of_several(ranks: Sequence[Recorded]) -> bool:
    """Return whether one rank of several was recorded: its waits for others are unknown."""
    return len(ranks) == 1 and ranks[0].one_of_several


def costs_of(ranks: Sequence[Recorded]) -> dict[str, AffineCost]:
    """Return the lowest cost of each collective; empty for one rank of several."""
    if one_of_several(ranks):
        return {}
    points: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for recorded in ranks:
        for transfer in recorded.transfers:
            if transfer.size_bytes and transfer.lasts_ns > 0:
                points[transfer.collective].append((transfer.size_bytes, transfer.lasts_ns))
    return {name: fastest(times) for name, times in points.items()}


def waits_of(ranks: Sequence[Recorded]) -> tuple[Wait, ...]:
    """Return the waits of all ranks of one job, in the order of ranks and starts."""
    costs, alone = costs_of(ranks), one_of_several(ranks)
    shortest = _shortest(ranks) if len(ranks) > 1 else {}
    waits = []
    for recorded in ranks:
        sent = merged((transfer.start_ns, transfer.end_ns) for transfer in recorded.transfers)
        idle = without(((sent[0][0] - 10**12, sent[-1][1]),), sent) if sent else ()
        periods = periods_of(recorded)
        known = len(periods) == len(recorded.steps)
        covered = None
        for key, transfer in _numbered(recorded):
            begin = transfer.start_ns if covered is None else max(transfer.start_ns, covered)
            covered = max(transfer.end_ns, begin)
            exposed = without(((begin, covered),) if begin < covered else (), recorded.computation)
            least, last_rank = shortest.get(key, (transfer.lasts_ns, None))
            claims = _claims(transfer, least, costs.get(transfer.collective), idle, alone=alone)
            for place, spans in _by_period(exposed, periods):
                causes = _causes(recorded, spans, claims)
                step = place if known else -1
                waits.append(Wait(recorded.rank, transfer, length(spans), causes, last_rank, step))
    return tuple(waits)


def _by_period(exposed: Spans, periods: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Spans]]:
    """Yield the part of the spans in each period, with the position of the period."""
    if not exposed:
        return
    place = bisect_right(periods, exposed[0][0], key=lambda period: period[1])
    while place < len(periods) and periods[place][0] < exposed[-1][1]:
        if part := clipped(exposed, periods[place]):
            yield place, part
        place += 1


def _numbered(recorded: Recorded) -> list[tuple[tuple[object, ...], Transfer]]:
    """Return the transfers, each with a key that is the same on every rank."""
    counts: dict[tuple[object, ...], int] = defaultdict(int)
    numbered: list[tuple[tuple[object, ...], Transfer]] = []
    for transfer in sorted(recorded.transfers, key=attrgetter("start_ns", "end_ns")):
        step = recorded.steps[transfer.step].name if transfer.step >= 0 else ""
        kind = (step, transfer.collective, transfer.group, transfer.size_bytes)
        numbered.append(((*kind, counts[kind]), transfer))
        counts[kind] += 1
    return numbered


def _shortest(ranks: Sequence[Recorded]) -> dict[tuple[object, ...], tuple[int, int]]:
    """Return the shortest duration, and its rank, of each transfer that all ranks have."""
    lasting: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for recorded in ranks:
        for key, transfer in _numbered(recorded):
            lasting[key].append((transfer.lasts_ns, recorded.rank))
    return {key: min(rows) for key, rows in lasting.items() if len(rows) == len(ranks)}


def without_stragglers(recorded: Recorded, ranks: Sequence[Recorded]) -> Recorded:
    """Return a recording in which every transfer begins when the last rank was ready for it.

    They last as long as on the rank where they were shortest: the others waited for it.
    """
    shortest = _shortest(ranks) if len(ranks) > 1 else {}
    transfers = (
        replace(each, start_ns=max(each.start_ns, each.end_ns - shortest[key][0]))
        if key in shortest
        else each
        for key, each in _numbered(recorded)
    )
    return replace(recorded, transfers=tuple(transfers))


def _claims(
    transfer: Transfer, least_ns: int, cost: AffineCost | None, idle: Spans, *, alone: bool
) -> dict[str, int]:
    """Return the upper limit of each cause's share of a transfer's waits (ns), in order."""
    if alone:
        return {"undivided": transfer.lasts_ns}
    claims = {"straggler": transfer.lasts_ns - least_ns}
    if cost is not None and transfer.size_bytes:
        claims["slow"] = least_ns - cost.cost_ns(transfer.size_bytes)
        claims["startup"] = cost.startup_ns
    if transfer.ready_ns is not None:
        claims["late"] = length(clipped(idle, (transfer.ready_ns, transfer.start_ns)))
        if transfer.first_ready_ns is not None:
            last = min(transfer.ready_ns, transfer.start_ns)
            claims["large"] = length(clipped(idle, (transfer.first_ready_ns, last)))
    claims["bytes"] = transfer.lasts_ns
    return claims


def _causes(recorded: Recorded, exposed: Spans, claims: dict[str, int]) -> dict[str, int]:
    """Divide a wait among its causes, and reduce the claims by it."""
    causes = dict.fromkeys(CAUSES, 0)
    unlaunched = without(_before_launch(recorded, exposed), recorded.synchronised)
    causes["input"] = length(both(unlaunched, recorded.input))
    causes["host"] = length(unlaunched) - causes["input"]
    left = length(exposed) - length(unlaunched)
    for cause, most in claims.items():
        causes[cause] = min(max(most, 0), left)
        claims[cause] -= causes[cause]
        left -= causes[cause]
    return causes


def _before_launch(recorded: Recorded, exposed: Spans) -> Spans:
    """Return the part of the spans in which the next kernel had not been launched yet."""
    spans = []
    for start, end in exposed:
        place = bisect_left(recorded.launched, end, key=lambda pair: pair[0])
        if place < len(recorded.launched):
            spans.append((start, min(end, max(start, recorded.launched[place][1]))))
    return tuple((start, end) for start, end in spans if start < end)


# ---
# Estimates the cost of a transfer without waiting: the highest line below all recorded transfers.
#
# Method: of all lines below the fastest transfer of each size, with start-up and slope >= 0, take
# the one nearest to these in sum: an edge of the lower convex hull, or the line through the origin
# and one point. Guarantee: no recorded transfer was faster than its line. With a single size the
# start-up is unknown and taken as 0. Complexity: O(n log n) for the hull, O(edges · sizes) for the
# choice. Source: own.


def fastest(points: Iterable[tuple[int, int]]) -> AffineCost:
    """Return the lower envelope of transfers, given as bytes (at least 1) and time (ns)."""
    least: dict[int, int] = {}
    for size, time in points:
        least[size] = min(time, least.get(size, time))
    origin = (Fraction(0), min(Fraction(time, size) for size, time in least.items()))
    lines = (origin,) if len(least) == 1 else (origin, *lower_lines(least))
    startup, slope = max(lines, key=lambda line: sum(line[0] + line[1] * size for size in least))
    return AffineCost(int(startup), slope)
