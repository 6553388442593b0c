"""All bucket sizes that make different buckets, if one size makes all of them.

Problem: a system puts gradients into buckets in a given order and has one setting: the size at
which a bucket closes (`filled`), or which none exceeds (`fitting`). List the sizes.
Method: start from the largest size; the next one is just below the least size that makes the same
buckets (`sizes_that_make`).
Guarantee: all different buckets are listed, unless they exceed `MOST_BUCKETS` in all; the smallest
sizes are left out then.
Complexity: O(listed buckets · log n); up to n² sizes.
Source: own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from planner.targets import Buckets

__all__ = ["MOST_BUCKETS", "every_size", "sizes_that_make"]

MOST_BUCKETS = 10**6
"""Buckets listed for one model at most; more would take minutes."""


def every_size(
    sizes: Sequence[int], kind: Buckets, most: int = MOST_BUCKETS
) -> Iterator[tuple[int, list[int]]]:
    """Yield a size (bytes) and the number of gradients in each bucket, the largest size first."""
    sent = list(accumulate(sizes, initial=0))
    limit, listed = sent[-1], 0
    while limit > 0 and listed < most:
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
