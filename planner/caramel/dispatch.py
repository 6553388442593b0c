"""Most urgent first: what to send whenever the network is free.

Problem: a plan for any windows and any cost, to start a search from.

Rule: as Jackson's preemptive schedule, but with transfers of at most a given size: of the ready
gradients those with the longest tails, as many bytes of them as fit; what does not fit waits for
the next transfer. Large transfers save start-ups, small ones let an urgent gradient overtake.

Guarantee: none for batches. The pieces of Jackson's preemptive schedule are the best plan up to
rounding where a transfer costs its bytes and no start-up.

Complexity: O((n + transfers) log n) a size. Source: own, after Jackson's rule and ByteScheduler
(Peng et al., SOSP 2019).
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import chain, repeat

from planner.caramel.jackson import preemptive
from planner.caramel.loads import Load, LoadPricer
from planner.caramel.windows import Windows
from planner.costs import TransferCost, least_rate

__all__ = ["most_urgent", "preemptive_pieces", "priority_batches"]


def priority_batches(pricer: LoadPricer, limit: int, element_bytes: int = 1) -> list[Load]:
    """Return what each transfer of at most `limit` bytes carries, at least one element."""
    return most_urgent(pricer, repeat((limit, 0)), element_bytes)


def most_urgent(
    pricer: LoadPricer, sizes: Iterable[tuple[int, int]], element_bytes: int = 1
) -> list[Load]:
    """Return what each transfer carries, in transfer order.

    Parameters
    ----------
    pricer : LoadPricer
        The windows and the cost.
    sizes : iterable of (int, int)
        Largest size of each transfer, in bytes, and when it may leave; at least one element. Where
        they end, transfers carry whatever is ready.
    element_bytes : int
        Parameters are cut at multiples of so many bytes.
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

    Pieces of one parameter that follow each other, or are less than an element, are joined.
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
