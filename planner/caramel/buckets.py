"""The best consecutive buckets behind a barrier, by dynamic programming.

Problem: send parameters p_1 … p_n in this order, whole, in buckets of consecutive parameters. A
bucket leaves when its last gradient is ready and the previous bucket has arrived. Minimise the end
of the last bucket; then the sensitivity to delays (`planner.robustness`); then the number of
buckets, as each costs a hook and a copy that no model counts.
Guarantee: the earliest end. The least sensitive buckets for up to `ROBUST` parameters while each
prefix has at most `KEPT` undominated ends. Proofs and limits: docs/caramel.md, "Why the buckets
behind a barrier are optimal".
Complexity: O(n² · kept) costs, O(n) where the network is mostly idle.
Source: own; barrier and buckets as in Li et al., "PyTorch Distributed", VLDB 2020.
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
    """Return the same with one nominal end each: fast enough for very many parameters."""
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

    `limits` holds, per delay scenario (`strain`), the latest end and the factor on transfer times.
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
