"""Sets of moments: sorted spans without overlaps.

Complexity: O(n log n) for `merged`, linear for the others.
"""

from collections.abc import Iterable

from planner.traces.recorded import Spans

__all__ = ["both", "length", "merged", "without"]


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the moments in any of some spans, which may overlap."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif start < end:
            found.append((start, end))
    return tuple(found)


def both(one: Spans, other: Spans) -> Spans:
    """Return the moments in both."""
    found, place = [], 0
    for start, end in one:
        while place < len(other) and other[place][1] <= start:
            place += 1
        at = place
        while at < len(other) and other[at][0] < end:
            found.append((max(start, other[at][0]), min(end, other[at][1])))
            at += 1
    return tuple(found)


def without(one: Spans, other: Spans) -> Spans:
    """Return the moments in the one that are not in the other."""
    found, place = [], 0
    for start, end in one:
        at = start
        while place < len(other) and other[place][1] <= start:
            place += 1
        beside = place
        while beside < len(other) and other[beside][0] < end:
            if at < other[beside][0]:
                found.append((at, other[beside][0]))
            at = max(at, other[beside][1])
            beside += 1
        if at < end:
            found.append((at, end))
    return tuple(found)


def length(spans: Spans) -> int:
    """Return how many ns they are."""
    return sum(end - start for start, end in spans)
