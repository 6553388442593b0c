"""One machine with heads and tails: Jackson's preemptive schedule, and list schedules.

Problem: 1 | r_j, q_j | Cmax: one machine; job j is ready at its head r_j, takes p_j, and its tail
q_j follows its end. Minimise max(C_j + q_j). Strongly NP-hard unless jobs may be interrupted.
`preemptive` interrupts them: whenever a job becomes ready or ends, the ready job with the longest
tail runs. Optimal, O(n log n), and so the strongest fast lower bound: its value is max over
non-empty sets J of (min r_j + sum p_j + min q_j).
Source: Jackson, "An extension of Johnson's results on job lot scheduling", Naval Research Logistics
Quarterly 3 (1956); Carlier, "The one-machine sequencing problem", EJOR 11 (1982), §2.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import chain, repeat
from math import ceil

from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import TransferCost, least_rate


@dataclass(frozen=True, slots=True)
class Preemptive:
    """A preemptive schedule: its value, and job, start and end of every uninterrupted stretch.

    Stretches are in time order; a job of no duration has one of no length.
    """

    value: int | Fraction  # the largest sum of a job's end and its tail
    segments: tuple[tuple[int, int | Fraction, int | Fraction], ...]


def preemptive(
    heads: Sequence[int | Fraction],
    durations: Sequence[int | Fraction],
    tails: Sequence[int | Fraction],
) -> Preemptive:
    """Return Jackson's preemptive schedule; of equal tails, the job given first goes first.

    There is at least one job, and no time is negative.
    """
    arrivals = sorted(range(len(heads)), key=lambda job: heads[job])
    left = list(durations)
    ready: list[tuple[int | Fraction, int]] = []
    segments: list[tuple[int, int | Fraction, int | Fraction]] = []
    value: int | Fraction = 0
    clock: int | Fraction = 0
    coming = 0
    while ready or coming < len(arrivals):
        if not ready:
            clock = max(clock, heads[arrivals[coming]])
        while coming < len(arrivals) and heads[arrivals[coming]] <= clock:
            job = arrivals[coming]
            heappush(ready, (-tails[job], job))
            coming += 1
        job = ready[0][1]
        end = clock + left[job]
        if coming < len(arrivals) and heads[arrivals[coming]] < end:
            end = heads[arrivals[coming]]
        else:
            heappop(ready)
            value = max(value, end + tails[job])
        left[job] -= end - clock
        if segments and segments[-1][0] == job and segments[-1][2] == clock:
            segments[-1] = (job, segments[-1][1], end)
        else:
            segments.append((job, clock, end))
        clock = end
    return Preemptive(value, tuple(segments))


def preemptive_bound(windows: Windows, cost: TransferCost) -> int:
    """Return a bound on the iteration of every plan, however it splits, groups and orders (ns)."""
    # Valid as every transfer of x bytes takes at least rate · x: docs/caramel.md, "Why Jackson's
    # bound holds".
    rate = least_rate(cost, sum(windows.sizes))
    durations = [rate * size for size in windows.sizes]
    value = preemptive(windows.heads, durations, windows.tails).value
    return max(windows.compute_ns, ceil(value))


# ---
# List scheduling: earliest due date first, with transfers of bounded size.
#
# Problem: construct a plan for any windows and any cost, as a start of a search. Rule: Jackson's
# preemptive rule with transfers of at most a given size. A transfer takes the ready gradients with
# the longest tails up to its size; the rest waits for the next transfer. Large transfers save
# start-ups, small transfers let an urgent gradient overtake. Guarantee: none for batches.
# `preemptive_pieces` is optimal up to rounding if a transfer has no start-up. Complexity: O((n +
# transfers) log n) per size. Source: own, after Jackson's rule and ByteScheduler (Peng et al., SOSP
# 2019).


def most_urgent(
    pricer: LoadPricer,
    sizes: Iterable[tuple[int, int]],
    element_bytes: int = 1,
    *,
    full: bool = False,
) -> list[Load]:
    """Return loads in transfer order, the most urgent ready bytes first.

    `sizes` yields the largest size (bytes) and the earliest start (ns) of each transfer. After the
    last size, transfers carry everything that is ready. A transfer carries at least one element.
    `full`: transfers wait until they are full while gradients are to come.
    """
    known, total = pricer.windows, sum(pricer.windows.sizes)
    heads, limits = known.heads, chain(sizes, repeat((total, 0)))
    arriving = sorted(range(len(known.sizes)), key=lambda j: (heads[j], j), reverse=True)
    ready: list[tuple[int, int, int]] = []  # (-tail, parameter, bytes left)
    loads: list[Load] = []
    now = waiting = 0  # waiting: bytes that are ready
    while arriving or ready:
        limit, start = next(limits)
        limit, now = max(limit, element_bytes), max(now, start)
        while arriving and (not ready or heads[arriving[-1]] <= now or (full and waiting < limit)):
            j = arriving.pop()
            now = max(now, heads[j])
            waiting += known.sizes[j]
            heappush(ready, (-known.tails[j], j, known.sizes[j]))
        load: list[tuple[int, int]] = []
        room = limit
        while ready:
            urgency, j, left = ready[0]
            part = left if left <= room else room - room % element_bytes
            if not part:
                break
            load.append((j, part))
            heappop(ready)
            room -= part
            if part < left:
                heappush(ready, (urgency, j, left - part))
                break
        loads.append(tuple(load))
        waiting -= limit - room
        now += pricer.cost_ns(limit - room)
    return loads


def preemptive_pieces(windows: Windows, cost: TransferCost, element_bytes: int = 1) -> list[Load]:
    """Return the pieces of Jackson's preemptive schedule at the best rate, in transfer order.

    Consecutive pieces of one parameter are joined, and so are pieces smaller than an element.
    """
    rate = least_rate(cost, sum(windows.sizes))
    schedule = preemptive(windows.heads, [rate * size for size in windows.sizes], windows.tails)
    left = list(windows.sizes)
    last = {job: place for place, (job, _, _) in enumerate(schedule.segments)}
    loads: list[Load] = []
    for place, (job, start, end) in enumerate(schedule.segments):
        size = left[job]
        if place < last[job]:
            size = min(size, int((end - start) / rate)) if rate else 0
            size -= size % element_bytes
        if size:
            loads.append(((job, size),))
            left[job] -= size
    return loads
