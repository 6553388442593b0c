"""Caramel's transfer scheduler: two-dimensional bin packing into the two passes.

Problem: place each group within the window in which it delays nothing.
Rule: in descending size, a group goes into the first gap of the backward pass after it is ready,
else into the last gap of the forward pass before it is read, so that earlier gaps stay free for
groups read earlier. A group that fits nowhere goes behind the backward pass or before the forward
pass, whichever adds less to the iteration (the former if equal).
Guarantee: none. Only the order is kept: transfers start as early as it allows.
Complexity: O(g²) for g groups.
Source: Caramel §4.3, which does not say where in a window.
"""

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from planner.deadline import Deadline
from planner.validation import MAX_TOTAL

__all__ = ["Item", "pack"]

Span = tuple[int, int]


class Item(NamedTuple):
    """A group: when it is ready, when it is read, its duration and size.

    `ready_ns` counts from the start of the backward pass, `due_ns` from that of the forward pass.
    """

    ready_ns: int
    due_ns: int
    duration_ns: int
    size_bytes: int


def pack(
    items: Sequence[Item], backward_ns: int, deadline: Deadline | None = None
) -> tuple[list[int], bool]:
    """Return the items' numbers in transfer order, and whether the deadline cut in.

    After the deadline no gap is searched for any more.
    """
    backward: list[tuple[Span, int]] = []
    forward: list[tuple[Span, int]] = []
    left = []
    # §4.3. Times of the forward pass count from its start.
    for number in sorted(range(len(items)), key=lambda i: (-items[i].size_bytes, i)):
        item = items[number]
        if deadline is not None and deadline.passed:
            left.append(number)
            continue
        span = _first_gap(backward, item.ready_ns, backward_ns, item.duration_ns)
        if span is not None:
            insort(backward, (span, number))
            continue
        span = _last_gap(forward, item.due_ns, item.duration_ns)
        if span is not None:
            insort(forward, (span, number))
            continue
        left.append(number)
    # The remaining groups, where they add least to the iteration; ties go behind.
    last = max((span[1] for span, _ in backward), default=0)
    first = min((span[0] for span, _ in forward), default=MAX_TOTAL)
    for number in left:
        item = items[number]
        behind = max(item.ready_ns, last) + item.duration_ns
        before = min(item.due_ns, first) - item.duration_ns
        added_behind = max(behind - max(last, backward_ns), 0)
        added_before = max(min(first, 0) - before, 0)
        if added_behind <= added_before:
            backward.append(((behind - item.duration_ns, behind), number))
            last = behind
        else:
            forward.insert(0, ((before, before + item.duration_ns), number))
            first = before
    timed_out = deadline is not None and deadline.passed
    return [number for _, number in backward + forward], timed_out


def _first_gap(taken: list[tuple[Span, int]], start: int, end: int, length: int) -> Span | None:
    for (begin, stop), _ in taken:
        if start + length <= begin:
            break
        start = max(start, stop)
    return (start, start + length) if start + length <= end else None


def _last_gap(taken: list[tuple[Span, int]], end: int, length: int) -> Span | None:
    for (begin, stop), _ in reversed(taken):
        if stop + length <= end:
            break
        end = min(end, begin)
    return (end - length, end) if end >= length else None
