"""How long computation waited for which transfer, and why.

Problem. While a transfer runs and nothing is computed, computation waits, or has nothing to do.
Whose fault is it?

Method. Each such moment counts for the transfer that began first of those that run. A transfer's
wait is then divided, in this order, each cause taking what is left at most:

- ``input``, ``host``: until the next kernel was launched nothing could have been computed; the host
  waited for data, or was busy. While the host waits for the device it is not to blame.
- ``straggler``: how much longer it ran here than on the rank where it ran least. Collectives end on
  all ranks at once, so that the rank with the shortest one came last: clocks need not agree.
- ``slow``: how much longer that lasted than the fastest transfers of the trace say.
- ``startup``: the start-up.
- ``late``: all it carries was there, and the network idle, before it began.
- ``large``: some of what it carries was there, and the network idle, before all was.
- ``bytes``: the rest; the network was busy since the first of it was there.
- ``undivided``: instead of all from ``straggler`` on, if one rank of several was recorded. How long
  a transfer runs there holds how long it waits for other ranks, and nothing says which part of it
  is that: neither lateness nor a start-up can be measured.

Only what happens within steps counts (`planner.traces.breakdown.periods_of`): what was launched
before them and ended before, or runs behind them, is nobody's wait. A transfer that is waited for
in two steps has a wait in each.

Guarantee. The causes of a wait sum to it. All waits of a step sum to the time of communication in
it during which nothing is computed, so none exceeds the step. Nothing depends on how clocks of
different ranks are set.

Complexity: O(n log n). Source: own; that collectives are aligned by their ends, as in trace
analysis with unsynchronised clocks.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from planner.costs import AffineCost
from planner.traces.breakdown import periods_of
from planner.traces.fastest import fastest
from planner.traces.recorded import Recorded, Spans, Transfer
from planner.traces.spans import both, clipped, length, merged, without

__all__ = ["CAUSES", "Wait", "costs_of", "waits_of"]

CAUSES = ("input", "host", "straggler", "slow", "startup", "late", "large", "bytes", "undivided")


@dataclass(frozen=True, slots=True)
class Wait:
    """A transfer, how long computation waited for it, and why.

    Attributes
    ----------
    rank : int
        Who waited.
    transfer : Transfer
        For what.
    waited_ns : int
        How long.
    causes : mapping of str to int
        Parts of it in ns, by the names in `CAUSES`.
    last_rank : int or None
        The rank that came last; None if only one was recorded.
    step : int
        Position of the step in which it waited in `Recorded.steps`; -1: unknown.
    """

    rank: int
    transfer: Transfer
    waited_ns: int
    causes: Mapping[str, int]
    last_rank: int | None = None
    step: int = -1


def one_of_several(ranks: Sequence[Recorded]) -> bool:
    """Return whether one rank of several was recorded: it does not show who waited for whom."""
    return len(ranks) == 1 and ranks[0].one_of_several


def costs_of(ranks: Sequence[Recorded]) -> dict[str, AffineCost]:
    """Return what no transfer of each collective undercut; nothing from one rank of several."""
    if one_of_several(ranks):
        return {}
    points: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for recorded in ranks:
        for transfer in recorded.transfers:
            if transfer.size_bytes and transfer.lasts_ns > 0:
                points[transfer.collective].append((transfer.size_bytes, transfer.lasts_ns))
    return {name: fastest(times) for name, times in points.items()}


def waits_of(ranks: Sequence[Recorded]) -> tuple[Wait, ...]:
    """Return the waits of all ranks, each with its transfer, in the order of ranks and starts.

    Parameters
    ----------
    ranks : sequence of Recorded
        One rank, or several of the same job.
    """
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
    """Yield the parts of spans in each period."""
    if not exposed:
        return
    place = bisect_right(periods, exposed[0][0], key=lambda period: period[1])
    while place < len(periods) and periods[place][0] < exposed[-1][1]:
        if part := clipped(exposed, periods[place]):
            yield place, part
        place += 1


def _numbered(recorded: Recorded) -> list[tuple[tuple[object, ...], Transfer]]:
    """Return the transfers with what the same one is called on every rank."""
    counts: dict[tuple[object, ...], int] = defaultdict(int)
    numbered: list[tuple[tuple[object, ...], Transfer]] = []
    for transfer in sorted(recorded.transfers, key=attrgetter("start_ns", "end_ns")):
        step = recorded.steps[transfer.step].name if transfer.step >= 0 else ""
        kind = (step, transfer.collective, transfer.group, transfer.size_bytes)
        numbered.append(((*kind, counts[kind]), transfer))
        counts[kind] += 1
    return numbered


def _shortest(ranks: Sequence[Recorded]) -> dict[tuple[object, ...], tuple[int, int]]:
    """Return of each transfer that all ranks have how long it lasted at least, and where."""
    lasting: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for recorded in ranks:
        for key, transfer in _numbered(recorded):
            lasting[key].append((transfer.lasts_ns, recorded.rank))
    return {key: min(rows) for key, rows in lasting.items() if len(rows) == len(ranks)}


def _claims(
    transfer: Transfer, least_ns: int, cost: AffineCost | None, idle: Spans, *, alone: bool
) -> dict[str, int]:
    """Return what each cause takes of a transfer's waits at most, in the order of taking."""
    if alone:
        return {"undivided": transfer.lasts_ns}
    claims = {"straggler": transfer.lasts_ns - least_ns}
    if cost is not None and transfer.size_bytes:
        claims["slow"] = least_ns - cost.cost_ns(transfer.size_bytes)
        claims["startup"] = cost.startup_ns
    if transfer.ready_ns is not None:
        claims["late"] = _idle(idle, transfer.ready_ns, transfer.start_ns)
        if transfer.first_ready_ns is not None:
            last = min(transfer.ready_ns, transfer.start_ns)
            claims["large"] = _idle(idle, transfer.first_ready_ns, last)
    claims["bytes"] = transfer.lasts_ns
    return claims


def _causes(recorded: Recorded, exposed: Spans, claims: dict[str, int]) -> dict[str, int]:
    """Divide a wait among its causes; what they take is taken off the claims."""
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


def _idle(idle: Spans, start: int, end: int) -> int:
    """Return for how long the network was idle from one moment to another."""
    if start >= end:
        return 0
    place = bisect_left(idle, end, key=lambda span: span[0])
    total = 0
    while place and idle[place - 1][1] > start:
        place -= 1
        total += min(end, idle[place][1]) - max(start, idle[place][0])
    return total


def _before_launch(recorded: Recorded, exposed: Spans) -> Spans:
    """Return the part of spans in which the kernel that ran next was not even launched."""
    spans = []
    for start, end in exposed:
        place = bisect_left(recorded.launched, end, key=lambda pair: pair[0])
        if place < len(recorded.launched):
            spans.append((start, min(end, max(start, recorded.launched[place][1]))))
    return tuple((start, end) for start, end in spans if start < end)
