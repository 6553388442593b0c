"""Priority batches: whenever the network is free, send the most urgent of what is ready.

Problem: a plan for any windows and any cost, to start a search from.

Rule: as Jackson's preemptive schedule, but with transfers of at most a given size: of the ready
gradients those with the longest tails, as many bytes of them as fit; what does not fit waits for
the next transfer. Large transfers save start-ups, small ones let an urgent gradient overtake.

Guarantee: none; with transfers of one element and no start-up, Jackson's schedule.

Complexity: O((n + transfers) log n) a size. Source: own, after Jackson's rule and ByteScheduler
(Peng et al., SOSP 2019).
"""

from heapq import heappop, heappush

from planner.caramel.loads import Load, LoadPricer

__all__ = ["priority_batches"]


def priority_batches(pricer: LoadPricer, limit: int, element_bytes: int = 1) -> list[Load]:
    """Return what each transfer carries, in transfer order.

    Parameters
    ----------
    pricer : LoadPricer
        The windows and the cost.
    limit : int
        Largest size of a transfer, in bytes; at least one element.
    element_bytes : int
        Parameters are cut at multiples of so many bytes.
    """
    known = pricer.windows
    limit = max(limit, element_bytes)
    arriving = sorted(range(len(known.sizes)), key=lambda j: (known.heads[j], j), reverse=True)
    ready: list[tuple[int, int, int]] = []  # (-tail, parameter, bytes left)
    loads: list[Load] = []
    now = 0
    while arriving or ready:
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
