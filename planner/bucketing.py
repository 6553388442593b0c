"""Merging rules of today's systems: which gradients share a communication.

All see gradients in the order in which they become ready and return the sizes of the groups they
form, in that order. Shared by the families that use them as baselines.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate, pairwise

__all__ = [
    "BUCKET_COUNTS",
    "DDP_BUCKET_BYTES",
    "DDP_BUCKET_MB",
    "DDP_FIRST_BUCKET_BYTES",
    "DDP_LIMITS",
    "ddp_buckets",
    "fitting_buckets",
    "mg_wfbp_groups",
    "nearest_size",
]

DDP_FIRST_BUCKET_BYTES = 1024 * 1024
DDP_BUCKET_BYTES = 25 * 1024 * 1024
DDP_LIMITS = DDP_FIRST_BUCKET_BYTES, DDP_BUCKET_BYTES

DDP_BUCKET_MB = (1, 5, 10, 25, 50, 100)
"""Values of ``bucket_cap_mb`` one would try; each is the limit of the first bucket, too."""

BUCKET_COUNTS = (2, 4, 8, 16, 32)
"""Into about how many buckets one would divide all gradients."""


def ddp_buckets(
    sizes: Sequence[int],
    first_limit: int = DDP_FIRST_BUCKET_BYTES,
    limit: int = DDP_BUCKET_BYTES,
) -> list[int]:
    """Group as PyTorch's DistributedDataParallel: a bucket closes once it reaches its limit.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each gradient.
    first_limit, limit : int
        Limits of the first bucket and of the others, in bytes.

    Returns
    -------
    list of int
        Number of gradients in each bucket. O(n).

    Notes
    -----
    Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
    VLDB 2020, §4.2; the limits are the package's defaults.
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
    """Group as DeepSpeed's ZeRO: what would exceed the limit opens the next bucket.

    Parameters
    ----------
    sizes : sequence of int
        Of each gradient, in any unit.
    limit : int
        Of a bucket, in the same; a larger gradient is alone.

    Returns
    -------
    list of int
        Number of gradients in each bucket. O(n).

    Notes
    -----
    Source: ``reduce_independent_p_g_buckets_and_remove_grads`` of DeepSpeed 0.19.
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
    """Return the size of buckets that comes nearest to planned groups, where one size makes all.

    Of the sizes of the groups it is the one with which most of them come out exactly; of several,
    the one with the fewest buckets, then the smallest.

    Parameters
    ----------
    order : sequence
        Gradients as they are put into buckets.
    sizes : sequence of int
        The size of each.
    groups : sequence of iterable
        The planned groups; between them they have each gradient once.
    rule : callable
        Returns the number of gradients in each bucket, of the sizes and a limit.

    Returns
    -------
    (int, list of int)
        The size, and the number of gradients in each bucket. O(groups · gradients).
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
    """Group as MG-WFBP: a gradient joins the open group if that saves more than it waits.

    Gradient j+1 joins the group that ends with j when it becomes ready less than one start-up cost
    after the group's communication could begin.

    Parameters
    ----------
    ready : sequence of int
        When each gradient is ready, non-decreasing.
    duration : callable
        ``duration(first, stop)`` is the communication time of gradients first … stop-1 together.
    startup : int
        Start-up cost of one communication.

    Returns
    -------
    list of int
        Number of gradients in each group. O(n): the published procedure recomputes the starts of
        all communications after each merge, O(n²), and gives the same groups.

    Notes
    -----
    Source: Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
    Algorithms", INFOCOM 2019 (arXiv 1811.11141), Algorithm 1. The rule is called optimal there;
    it is not.
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
