"""Jackson's preemptive schedule: the strongest fast lower bound.

Problem: 1 | r_j, q_j, pmtn | Cmax: one machine; job j is ready at its head r_j, takes p_j, may be
interrupted, and its tail q_j follows its end. Minimise max(C_j + q_j).
Guarantee: optimal. Whenever a job becomes ready or ends, the ready job with the longest tail runs.
The value is max over non-empty sets J of (min r_j + sum p_j + min q_j).
Complexity: O(n log n).
Source: Jackson, "An extension of Johnson's results on job lot scheduling", Naval Research Logistics
Quarterly 3 (1956); Carlier, "The one-machine sequencing problem", EJOR 11 (1982), §2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from math import ceil

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

    Parameters
    ----------
    heads, durations, tails : sequence of int or Fraction
        Of each job, at least one job, none negative.
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
