"""The best consecutive buckets behind a barrier.

Problem: parameters p_1 … p_n are sent in this order, whole, in buckets of consecutive ones. A
bucket leaves when its last gradient is ready and the bucket before has arrived, and takes what a
transfer of its bytes costs. When has the last one arrived, at best?

Method: f(j), the earliest end of buckets that carry p_1 … p_j, is the least over i < j of
max(f(i), r_j) + c(bytes of p_{i+1} … p_j), with r_j when all of p_1 … p_j are ready; what came
before matters by f(i) only, and an earlier f(i) is never worse.

Where no larger transfer costs less, f never falls, so that of all i with f(i) ≤ r_j the last one is
best: the search goes back from j and ends there.

Guarantee: optimal. For affine costs so among all groups of whole parameters behind a barrier, if
the order is that of readiness: bytes that move from a later bucket into an earlier one whose last
gradient comes after theirs delay nothing. `tests/caramel/test_targets.py` enumerates both.

Complexity: O(n²) costs, O(n) where the network is mostly idle. Source: own; the barrier and its
buckets as in Li et al., "PyTorch Distributed", VLDB 2020.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from planner.costs import TransferCost
from planner.deadline import Deadline

__all__ = ["best_buckets"]


def best_buckets(
    ready: Sequence[int],
    sizes: Sequence[int],
    cost: TransferCost,
    deadline: Deadline,
    most_bytes: int | None = None,
) -> tuple[int, list[int]]:
    """Return when the last bucket has arrived at best, and how many parameters each bucket has.

    Parameters
    ----------
    ready : sequence of int
        When each gradient is ready (ns), in the order in which they are sent.
    sizes : sequence of int
        Bytes of each.
    cost : TransferCost
        What a transfer of so many bytes takes.
    deadline : Deadline
        When to give up.
    most_bytes : int, optional
        No bucket may be larger, but for one of a single parameter.

    Raises
    ------
    TimeUpError
        If it passes.
    """
    reached = list(accumulate(ready, max))
    sent = list(accumulate(sizes, initial=0))
    price: Callable[[int], int] = cost.cost_ns
    monotone = cost.is_monotone
    ends, starts = [0], [0]
    for stop in range(1, len(sent)):
        if not stop % 64:
            deadline.check()
        at_least, best, first = reached[stop - 1], -1, 0
        for start in range(stop - 1, -1, -1):
            if most_bytes is not None and sent[stop] - sent[start] > most_bytes and best >= 0:
                break
            free = ends[start]
            end = max(free, at_least) + price(sent[stop] - sent[start])
            if best < 0 or end < best:
                best, first = end, start
            if monotone and free <= at_least:
                break
        ends.append(best)
        starts.append(first)
    counts = []
    stop = len(sizes)
    while stop:
        counts.append(stop - starts[stop])
        stop = starts[stop]
    return ends[-1], counts[::-1]
