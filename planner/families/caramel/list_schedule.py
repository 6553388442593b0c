"""List scheduling: earliest due date first, with transfers of bounded size.

Problem: construct a plan for any windows and any cost, as a start of a search.
Rule: Jackson's preemptive rule with transfers of at most a given size. A transfer takes the ready
gradients with the longest tails up to its size; the rest waits for the next transfer. Large
transfers save start-ups, small transfers let an urgent gradient overtake.
Guarantee: none for batches. `preemptive_pieces` is optimal up to rounding if a transfer has no
start-up.
Complexity: O((n + transfers) log n) per size.
Source: own, after Jackson's rule and ByteScheduler (Peng et al., SOSP 2019).
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import chain, repeat

from planner.families.caramel.jackson import preemptive
from planner.families.caramel.pricing import Load, LoadPricer
from planner.families.caramel.windows import Windows
from planner.model.costs import TransferCost, least_rate


def most_urgent(
    pricer: LoadPricer, sizes: Iterable[tuple[int, int]], element_bytes: int = 1
) -> list[Load]:
    """Return loads in transfer order, the most urgent ready bytes first.

    `sizes` yields the largest size (bytes) and the earliest start (ns) of each transfer. After the
    last size, transfers carry everything that is ready. A transfer carries at least one element.
    """
    known, total = pricer.windows, sum(pricer.windows.sizes)
    limits = chain(sizes, repeat((total, 0)))
    arriving = sorted(range(len(known.sizes)), key=lambda j: (known.heads[j], j), reverse=True)
    ready: list[tuple[int, int, int]] = []  # (-tail, parameter, bytes left)
    loads: list[Load] = []
    now = 0
    while arriving or ready:
        limit, start = next(limits)
        limit, now = max(limit, element_bytes), max(now, start)
        if not ready:
            now = max(now, known.heads[arriving[-1]])
        while arriving and known.heads[arriving[-1]] <= now:
            j = arriving.pop()
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
