"""The best consecutive buckets behind a barrier.

Problem: parameters p_1 … p_n are sent in this order, whole, in buckets of consecutive ones. A
bucket leaves when its last gradient is ready and the bucket before has arrived, and takes what a
transfer of its bytes costs. When has the last one arrived, at best? Of buckets that are equally
early, which are the most robust (`planner.robustness`), and of these, which are fewest? Each one
costs a hook and a copy, which no model counts.

Method: f(j), the earliest end of buckets that carry p_1 … p_j, is the least over i < j of
max(f(i), r_j) + c(bytes of p_{i+1} … p_j), with r_j when all of p_1 … p_j are ready; what came
before matters by f(i) only, and an earlier f(i) is never worse. Under a strain the same holds of
the strained times; so of each j the undominated ends, nominal and strained, are kept. Then buckets
are made anew from the last one on: each as large as the ends that are kept before it allow.

Where no larger transfer costs less, a start at which all ends kept are hidden by r_j is better
than any before it: the search goes back from j and ends there.

Guarantee: the earliest end. The most robust of those up to `ROBUST` parameters, as long as at most
`KEPT` ends are kept of each j; then for affine costs of whole nanoseconds the fewest buckets, since
buckets that are cut at the start of a largest last one still arrive in time for it. For affine
costs the end is the earliest also among all groups of whole parameters behind a barrier, if
the order is that of readiness: bytes that move from a later bucket into an earlier one whose last
gradient comes after theirs delay nothing. `tests/caramel/test_targets.py` enumerates all.

Complexity: O(n² · kept) costs, O(n) where the network is mostly idle. Source: own; the barrier and
its buckets as in Li et al., "PyTorch Distributed", VLDB 2020.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from planner.costs import TransferCost
from planner.deadline import Deadline
from planner.robustness import NOMINAL, STRAINS
from planner.solving.pareto import nondominated

__all__ = ["KEPT", "ROBUST", "best_buckets"]

KEPT = 8
"""Ends kept of buckets that carry the same parameters."""

ROBUST = 256
"""Up to so many parameters strains are looked at."""

Ends = tuple[int, ...]


def best_buckets(
    ready: Sequence[int],
    sizes: Sequence[int],
    cost: TransferCost,
    deadline: Deadline,
    most_bytes: int | None = None,
    until_ns: int = 0,
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
    until_ns : int
        Nothing is gained by arriving earlier than this.

    Raises
    ------
    TimeUpError
        If it passes.
    """
    strains = (NOMINAL, *STRAINS) if len(sizes) <= ROBUST else (NOMINAL,)
    slower = [strain.transfer for strain in strains]
    reached = [[c * time for _, c in strains] for time in accumulate(ready, max)]
    sent = list(accumulate(sizes, initial=0))
    kept = (
        _kept(reached, slower, sent, cost, deadline, most_bytes)
        if len(strains) > 1
        else _earliest([time for (time,) in reached], sent, cost, deadline, most_bytes)
    )
    late = [c * until_ns for _, c in strains]
    limits = min(tuple(map(max, ends, late)) for ends in kept[-1])
    counts, stop, earliest = [], len(sizes), min(kept[-1])[0]
    while stop:
        deadline.check()
        start = _largest(stop, (limits, slower), reached[stop - 1], sent, kept, cost, most_bytes)
        lasts = cost.cost_ns(sent[stop] - sent[start])
        limits = tuple(limit - t * lasts for limit, t in zip(limits, slower, strict=True))
        counts.append(stop - start)
        stop = start
    return earliest, counts[::-1]


def _kept(
    reached: Sequence[Sequence[int]],
    slower: Sequence[int],
    sent: Sequence[int],
    cost: TransferCost,
    deadline: Deadline,
    most_bytes: int | None,
) -> list[list[Ends]]:
    """Return the ends kept of buckets that carry the first parameters, of each number of them."""
    kept: list[list[Ends]] = [[(0,) * len(slower)]]
    price, monotone = cost.cost_ns, cost.is_monotone
    for stop in range(1, len(sent)):
        deadline.check()
        heads, candidates = list(reached[stop - 1]), set[Ends]()
        for start in range(stop - 1, -1, -1):
            size = sent[stop] - sent[start]
            if most_bytes is not None and size > most_bytes and candidates:
                break
            lasts, hidden = price(size), False
            for ends in kept[start]:
                leaves = list(map(max, ends, heads))
                candidates.add(tuple(at + t * lasts for at, t in zip(leaves, slower, strict=True)))
                hidden |= leaves == heads
            if monotone and hidden:
                break
        kept.append(nondominated(candidates, KEPT))
    return kept


def _earliest(
    reached: Sequence[int],
    sent: Sequence[int],
    cost: TransferCost,
    deadline: Deadline,
    most_bytes: int | None,
) -> list[list[Ends]]:
    """Return the same without strains: one end each, for very many parameters."""
    ends = [0]
    price, monotone = cost.cost_ns, cost.is_monotone
    for stop in range(1, len(sent)):
        if not stop % 64:
            deadline.check()
        head, best = reached[stop - 1], -1
        for start in range(stop - 1, -1, -1):
            size = sent[stop] - sent[start]
            if most_bytes is not None and size > most_bytes and best >= 0:
                break
            free = ends[start]
            end = max(free, head) + price(size)
            if best < 0 or end < best:
                best = end
            if monotone and free <= head:
                break
        ends.append(best)
    return [[(end,)] for end in ends]


def _largest(
    stop: int,
    limits: tuple[Ends, Sequence[int]],
    heads: Sequence[int],
    sent: Sequence[int],
    kept: Sequence[Sequence[Ends]],
    cost: TransferCost,
    most_bytes: int | None,
) -> int:
    """Return where the largest last bucket starts that arrives within the limits.

    Those are the latest ends, and how many times as long transfers take, under each strain.
    """

    def fits(start: int, ends: Sequence[int]) -> bool:
        lasts = cost.cost_ns(sent[stop] - sent[start])
        return all(at + t * lasts <= most for at, most, t in zip(ends, *limits, strict=True))

    first = 0
    if cost.is_monotone:
        first = bisect_left(range(stop), True, key=lambda start: fits(start, heads))
    if most_bytes is not None:
        first = max(first, min(bisect_left(sent, sent[stop] - most_bytes), stop - 1))
    for start in range(first, stop):
        if fits(start, heads) and any(fits(start, ends) for ends in kept[start]):
            return start
    raise AssertionError  # what the limits were taken from keeps to them
