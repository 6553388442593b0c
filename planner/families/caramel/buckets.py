"""The best consecutive buckets behind a barrier, by dynamic programming.

Problem: send parameters p_1 … p_n in this order, whole, in buckets of consecutive parameters. A
bucket leaves when its last gradient is ready and the previous bucket has arrived. Minimise the end
of the last bucket; then the sensitivity to delays (`planner.solving.tie_break`); then the number
of buckets, since each bucket costs a hook and a copy outside the model. Guarantee: the earliest
end; the least sensitive buckets for up to `ROBUST` parameters if no prefix has more than `KEPT`
undominated ends. Proofs and limits: docs/caramel.md, "Why the buckets behind a barrier are
optimal". Complexity: O(n² · kept) costs, O(n) where the network is mostly idle. Source: own;
barrier and buckets as in Li et al., "PyTorch Distributed", VLDB 2020.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from planner.model.costs import TransferCost
from planner.solving.deadline import Deadline
from planner.solving.pareto import nondominated
from planner.solving.targets import Buckets
from planner.solving.tie_break import DELAYS, NOMINAL

KEPT = 8
"""Undominated ends kept per prefix of parameters."""

ROBUST = 256
"""Largest number of parameters for which sensitivity to delays is considered."""

Ends = tuple[int, ...]


def best_buckets(
    ready: Sequence[int],
    sizes: Sequence[int],
    cost: TransferCost,
    deadline: Deadline,
    most_bytes: int | None = None,
    until_ns: int = 0,
) -> tuple[int, list[int]]:
    """Return the earliest end of the last bucket (ns), and the number of parameters in each bucket.

    `ready` and `sizes` are in sending order. No bucket is larger than `most_bytes`, except one of a
    single parameter. An end before `until_ns` counts as `until_ns`. Raises `TimeUpError` at the
    deadline.
    """
    delays = (NOMINAL, *DELAYS) if len(sizes) <= ROBUST else (NOMINAL,)
    slower = [delay.transfer for delay in delays]
    reached = [[c * time for _, c in delays] for time in accumulate(ready, max)]
    sent = list(accumulate(sizes, initial=0))
    kept = (
        _kept(reached, slower, sent, cost, deadline, most_bytes)
        if len(delays) > 1
        else _earliest([time for (time,) in reached], sent, cost, deadline, most_bytes)
    )
    late = [c * until_ns for _, c in delays]
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
    """Return, for each prefix of the parameters, the undominated ends of its last bucket."""
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
    """Return the nominal end of each prefix only, which is fast for very many parameters."""
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
    """Return the start of the largest last bucket that arrives within the limits.

    `limits` holds, per delay scenario (`delay`), the latest end and the factor on transfer times.
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
    raise AssertionError  # the buckets that gave the limits keep to them


# ---
# All bucket sizes that make different buckets, for systems with one size for all buckets.
#
# Problem: a system puts gradients into buckets in a given order and has one setting: the size at
# which a bucket closes (`filled`), or which no bucket exceeds (`fitting`). List the sizes. Method:
# start from the largest size; the next size is just below the least size that makes the same
# buckets (`sizes_that_make`). Guarantee: all different buckets are listed, up to `MOST_BUCKETS` in
# all; beyond this number the smallest sizes are left out. Complexity: O(listed buckets · log n); up
# to n² sizes. Source: own.

MOST_BUCKETS = 10**6
"""Buckets listed for one model at most; more would take minutes."""


def every_size(sizes: Sequence[int], kind: Buckets) -> Iterator[tuple[int, list[int]]]:
    """Yield a size (bytes) and the number of gradients in each bucket, the largest size first."""
    sent = list(accumulate(sizes, initial=0))
    limit, listed = sent[-1], 0
    while limit > 0 and listed < MOST_BUCKETS:
        ends = list(_ends(sent, limit, kind))
        counts = [stop - start for start, stop in pairwise(ends)]
        yield limit, counts
        listed += len(counts)
        low, _ = sizes_that_make(sizes, counts, kind) or (limit, limit)
        limit = low - 1


def sizes_that_make(
    sizes: Sequence[int], counts: Sequence[int], kind: Buckets
) -> tuple[int, int | None] | None:
    """Return the least and the largest size (bytes) that make these buckets, or None.

    The largest is None if there is no limit.
    """
    sent = list(accumulate(sizes, initial=0))
    low, high = 1, None
    for start, stop in pairwise(accumulate(counts, initial=0)):
        full = sent[stop] - sent[start]
        if kind == "filled":
            low = max(low, full - sizes[stop - 1] + 1)
            bound = full
        else:
            low = max(low, full if stop - start > 1 else 1)
            bound = full + sizes[stop] - 1 if stop < len(sizes) else 0
        if stop < len(sizes):
            high = bound if high is None else min(high, bound)
    return None if high is not None and high < low else (low, high)


def _ends(sent: Sequence[int], limit: int, kind: Buckets) -> Iterator[int]:
    """Yield the bucket boundaries."""
    place, last = 0, len(sent) - 1
    yield place
    while place < last:
        if kind == "filled":
            place = min(bisect_left(sent, sent[place] + limit, place + 1), last)
        else:
            place = max(bisect_right(sent, sent[place] + limit, place) - 1, place + 1)
        yield place
