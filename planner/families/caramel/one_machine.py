"""Transfers as jobs of one machine with heads and tails: Jackson's bound, and list schedules."""

from collections.abc import Iterable
from fractions import Fraction
from heapq import heappop, heappush
from itertools import chain, repeat
from math import ceil

from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import TransferCost, least_rate
from planner.solving.jackson import preemptive


def preemptive_bound(windows: Windows, cost: TransferCost) -> int:
    """Return a bound on the iteration of every plan, however it splits, groups and orders (ns)."""
    # Valid as every transfer of x bytes takes at least rate · x: docs/caramel.md, "Why Jackson's
    # bound holds".
    rate = least_rate(cost, sum(windows.sizes))
    jobs: Iterable[tuple[int | Fraction, int | Fraction, int | Fraction]] = zip(
        windows.heads, (rate * size for size in windows.sizes), windows.tails, strict=True
    )
    return max(windows.compute_ns, ceil(preemptive(jobs)))


# ---
# List scheduling: earliest due date first, with transfers of bounded size.
#
# Problem: construct a plan for any windows and any cost, as a start of a search. Rule: Jackson's
# preemptive rule with transfers of at most a given size. A transfer takes the ready gradients with
# the longest tails up to its size; the rest waits for the next transfer. Large transfers save
# start-ups, small transfers let an urgent gradient overtake. Guarantee: none. Complexity: O((n +
# transfers) log n) per size. Source: own, after Jackson's rule and ByteScheduler (Peng et al., SOSP
# 2019).


def list_schedule(
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
