"""Jackson's preemptive schedule of one machine with heads and tails.

Problem: 1 | r_j, q_j, pmtn | Cmax: job j is ready at its head r_j, takes p_j, may be interrupted,
and its tail q_j follows its end. Minimise max(C_j + q_j). Rule: whenever a job becomes ready or
ends, the ready job with the longest tail runs. Guarantee: optimal, and so the strongest fast lower
bound of schedules without interruptions, which are strongly NP-hard. Complexity: O(n log n).
Source: Jackson, "An extension of Johnson's results on job lot scheduling", Naval Research Logistics
Quarterly 3 (1956); Carlier, "The one-machine sequencing problem", EJOR 11 (1982), §2.2.
"""

from collections.abc import Iterable
from fractions import Fraction
from heapq import heappop, heappush
from typing import TypeVar

Time = TypeVar("Time", int, int | Fraction)


def preemptive(jobs: Iterable[tuple[Time, Time, Time]]) -> Time:
    """Return the minimum of the largest end plus tail of jobs (head, duration, tail).

    0 without jobs; no time is negative.
    """
    arriving = sorted(jobs, reverse=True)
    ready: list[list[Time]] = []  # -tail, duration left
    now: Time = 0
    latest: Time = 0
    while arriving or ready:
        if not ready:
            now = max(now, arriving[-1][0])
        while arriving and arriving[-1][0] <= now:
            _, duration, tail = arriving.pop()
            heappush(ready, [-tail, duration])
        behind, left = ready[0]
        if arriving and arriving[-1][0] - now < left:
            ready[0][1] = left - (arriving[-1][0] - now)
            now = arriving[-1][0]
        else:
            heappop(ready)
            now += left
            latest = max(latest, now - behind)
    return latest
