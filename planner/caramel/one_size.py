"""The best size of buckets, where one size makes all of them.

Problem: a system puts gradients into buckets in a given order, and has one setting: the size at
which a bucket closes (`filled`), or which none exceeds (`fitting`). Which size is best?

Method: other sizes make the same buckets until the first of them changes, so one of each kind is
tried: from size 1 on the next one is where the smallest closed bucket would not close, or where the
first bucket would hold one more.

Guarantee: all buckets that any size makes are listed, as long as there are no more than
`MOST_BUCKETS` in all; those left out then are of the smallest sizes.
Complexity: O(listed buckets · log n); up to n² sizes. Source: own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from planner.targets import Buckets

__all__ = ["MOST_BUCKETS", "every_size", "sizes_that_make"]

MOST_BUCKETS = 10**6
"""So many are listed for one model; more would take minutes."""


def every_size(
    sizes: Sequence[int], kind: Buckets, most: int = MOST_BUCKETS
) -> Iterator[tuple[int, list[int]]]:
    """Yield a size, in bytes, and how many gradients its buckets have, the largest size first.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each gradient, in order.
    kind : {"filled", "fitting"}
        What closes a bucket.
    most : int
        How many buckets to list at most.
    """
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
    """Return the least and the largest size (bytes) that make these buckets; None if none does.

    The largest is None if all larger ones do.
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
    """Yield where buckets begin and end."""
    place, last = 0, len(sent) - 1
    yield place
    while place < last:
        if kind == "filled":
            place = min(bisect_left(sent, sent[place] + limit, place + 1), last)
        else:
            place = max(bisect_right(sent, sent[place] + limit, place) - 1, place + 1)
        yield place
