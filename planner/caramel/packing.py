"""Caramel's transfer scheduler: two-dimensional bin packing into the two passes.

Problem: when to send each group, within the window in which it delays nothing?

Rule: groups in descending size. First each is placed in the backward pass, in the first gap after
it is ready that holds it; else in the forward pass, in the last gap before it is read, which leaves
the early ones to groups that are read early. Then what fits nowhere is placed behind the backward
pass or before the forward pass, whichever lengthens the iteration less (the former if equal).

Guarantee: none. Only the order is kept: transfers leave as early as it allows.

Complexity: O(g²) for g groups. Source: Caramel §4.3; where in a window is left open there.
"""

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from planner.deadline import Deadline
from planner.validation import MAX_TOTAL

__all__ = ["Item", "pack"]

Span = tuple[int, int]


class Item(NamedTuple):
    """One group: when it is ready, when it is read, what it costs and holds.

    `due_ns` is counted from the start of the forward pass, `ready_ns` from that of the backward
    pass.
    """

    ready_ns: int
    due_ns: int
    duration_ns: int
    size_bytes: int


def pack(
    items: Sequence[Item], backward_ns: int, deadline: Deadline | None = None
) -> tuple[list[int], bool]:
    """Return the items' numbers in transfer order, and whether the deadline cut in.

    Parameters
    ----------
    items : sequence of Item
        The groups.
    backward_ns : int
        Length of the backward pass.
    deadline : Deadline, optional
        Once it has passed, no gap is looked for any more.
    """
    backward: list[tuple[Span, int]] = []
    forward: list[tuple[Span, int]] = []
    left = []
    # §4.3: in descending size, in the first gap of the backward pass after it is ready, else in the
    # last gap of the forward pass before it is read; times of that pass count from its begin.
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
    # What is left goes behind all of the backward pass or before all of the forward pass, whichever
    # makes the iteration longer by less; ties go behind.
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
