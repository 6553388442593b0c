"""Set operations on times: sorted spans without overlaps.

Complexity: O(n log n) for `merged`, O(log n + result) for `clipped`, linear for the others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from planner.traces.recorded import Spans


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the union of spans that may overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif start < end:
            joined.append((start, end))
    return tuple(joined)


def both(first: Spans, second: Spans) -> Spans:
    """Return the intersection."""
    common, place = [], 0
    for start, end in first:
        while place < len(second) and second[place][1] <= start:
            place += 1
        at = place
        while at < len(second) and second[at][0] < end:
            common.append((max(start, second[at][0]), min(end, second[at][1])))
            at += 1
    return tuple(common)


def clipped(spans: Spans, period: tuple[int, int]) -> Spans:
    """Return the part of the spans within a period."""
    start, end = period
    if start >= end:
        return ()
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, end, key=lambda span: span[0])
    return tuple((max(start, at), min(end, until)) for at, until in spans[first:last])


def without(whole: Spans, taken: Spans) -> Spans:
    """Return the difference: `whole` without `taken`."""
    left, place = [], 0
    for start, end in whole:
        at = start
        while place < len(taken) and taken[place][1] <= start:
            place += 1
        beside = place
        while beside < len(taken) and taken[beside][0] < end:
            if at < taken[beside][0]:
                left.append((at, taken[beside][0]))
            at = max(at, taken[beside][1])
            beside += 1
        if at < end:
            left.append((at, end))
    return tuple(left)


def length(spans: Spans) -> int:
    """Return the total duration."""
    return sum(end - start for start, end in spans)
