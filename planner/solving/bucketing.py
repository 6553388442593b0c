"""Bucketing rules of existing systems: which gradients share a communication.

Each takes the gradients in the order in which they become ready, and returns the number of
gradients in each bucket. Families use them as baselines.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate, pairwise

DDP_FIRST_BUCKET_BYTES = 1024 * 1024
DDP_BUCKET_BYTES = 25 * 1024 * 1024
DDP_LIMITS = DDP_FIRST_BUCKET_BYTES, DDP_BUCKET_BYTES

DDP_BUCKET_MB = (1, 5, 10, 25, 50, 100)
"""Common values of ``bucket_cap_mb``; each also limits the first bucket."""

BUCKET_COUNTS = (2, 4, 8, 16, 32)
"""Common numbers of buckets for all gradients."""


def ddp_buckets(
    sizes: Sequence[int],
    first_limit: int = DDP_FIRST_BUCKET_BYTES,
    limit: int = DDP_BUCKET_BYTES,
) -> list[int]:
    """Group as PyTorch's DistributedDataParallel: a bucket closes once it reaches its limit. O(n).

    Sizes and limits are in bytes. Source: Li et al., "PyTorch Distributed: Experiences on
    Accelerating Data Parallel Training", VLDB 2020, §4.2; the limits are the package's defaults.
    """
    groups: list[int] = []
    members, filled = 0, 0
    for size in sizes:
        members += 1
        filled += size
        if filled >= (limit if groups else first_limit):
            groups.append(members)
            members, filled = 0, 0
    return [*groups, members] if members else groups


def fitting_buckets(sizes: Sequence[int], limit: int) -> list[int]:
    """Group as DeepSpeed's ZeRO: a gradient that would exceed the limit opens a new bucket. O(n).

    A gradient above the limit gets a bucket of its own. Source:
    ``reduce_independent_p_g_buckets_and_remove_grads`` of DeepSpeed 0.19.
    """
    groups: list[int] = []
    filled = 0
    for size in sizes:
        if not groups or filled + size > limit:
            groups.append(0)
            filled = 0
        groups[-1] += 1
        filled += size
    return groups


def nearest_size(
    order: Sequence[Hashable],
    sizes: Sequence[int],
    groups: Sequence[Iterable[Hashable]],
    rule: Callable[[Sequence[int], int], list[int]],
) -> tuple[int, list[int]]:
    """Return the bucket size under which `rule` reproduces most planned groups, and the buckets.

    Candidates are the sizes of the groups. Ties: the fewest buckets, then the smallest size.
    `groups` hold each gradient of `order` once; `rule` returns the number of gradients in each
    bucket for sizes and a limit. O(groups · gradients).
    """
    size_of = dict(zip(order, sizes, strict=True))
    planned = set(map(frozenset, groups))
    best: tuple[int, int, int] | None = None
    for limit in {sum(size_of[name] for name in group) for group in planned}:
        spans = list(pairwise(accumulate(rule(sizes, limit), initial=0)))
        exact = sum(frozenset(order[start:stop]) in planned for start, stop in spans)
        candidate = (-exact, len(spans), limit)
        best = candidate if best is None else min(best, candidate)
    assert best is not None
    return best[2], rule(sizes, best[2])


def mg_wfbp_groups(
    ready: Sequence[int], duration: Callable[[int, int], int], startup: int
) -> list[int]:
    """Group as MG-WFBP: a gradient joins the open group if it saves more than it delays. O(n).

    Gradient j+1 joins the group that ends with j if it becomes ready less than one start-up cost
    after the group's communication could begin. `ready` is non-decreasing; ``duration(first,
    stop)`` is the communication time of gradients first … stop-1 together. The published procedure
    recomputes the starts of all communications after each merge, O(n²), and gives the same groups.

    Source: Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
    Algorithms", INFOCOM 2019 (arXiv 1811.11141), Algorithm 1. The paper calls the rule optimal; it
    is not.
    """
    groups, first, free = [], 0, 0
    for following in range(1, len(ready)):
        begin = max(free, ready[following - 1])
        if ready[following] - begin < startup:
            continue
        groups.append(following - first)
        free = begin + duration(first, following)
        first = following
    return [*groups, len(ready) - first]


def earliest_end(moments: Sequence[int], sent: Sequence[int], startup: int) -> int:
    """Return the earliest end of batches that are each followed by computation.

    `moments`: the remaining computation after each part is sent, not rising. `sent`: time for all
    bytes up to each part. Reversed in time, these are parts that become ready at moments. A batch
    that reaches as far as an end allows is never worse. O(parts · log time).
    """
    low, high = 0, startup + sent[-1] + moments[0]
    while low < high:
        middle = (low + high) // 2
        if ends_by(middle, moments, sent, startup):
            high = middle
        else:
            low = middle + 1
    return high


def ends_by(end: int, moments: Sequence[int], sent: Sequence[int], startup: int) -> bool:
    """Return whether the batches of `earliest_end` can end by `end`."""
    startups, place = 0, 0
    while place < len(sent):
        startups += startup
        place, before = bisect_right(sent, end - startups - moments[place]), place
        if place <= before:
            return False
    return True
