"""Caramel's transfer scheduler: two-dimensional bin packing into the two passes.

Problem: when to send each group, within the window in which it delays nothing?

Rule: groups in descending size. First each is placed in the backward pass, in the first gap after
it is ready that holds it; else in the forward pass, in the last gap before it is read, which leaves
the early ones to groups that are read early. Then what fits nowhere is placed behind the backward
pass or before the forward pass, whichever lengthens the iteration less (the former if equal).

Guarantee: none. Only the order is kept: transfers leave as early as it allows.

Complexity: O(g²) for g groups. Source: Caramel §4.3; where in a window is left open there.
"""

from collections.abc import Sequence
from typing import NamedTuple

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


def pack(items: Sequence[Item], backward_ns: int) -> list[int]:
    """Return the items' numbers in transfer order."""
    backward: list[tuple[Span, int]] = []
    forward: list[tuple[Span, int]] = []
    left = []
    for number in sorted(range(len(items)), key=lambda i: (-items[i].size_bytes, i)):
        item = items[number]
        span = _first_gap(backward, item.ready_ns, backward_ns, item.duration_ns)
        if span is not None:
            backward = sorted([*backward, (span, number)])
            continue
        span = _last_gap(forward, item.due_ns, item.duration_ns)
        if span is not None:
            forward = sorted([*forward, (span, number)])
            continue
        left.append(number)
    for number in left:
        item = items[number]
        behind = _behind(backward, item)
        before = _before(forward, item)
        now_behind = max(backward_ns, *(span[1] for span, _ in backward), 0)
        now_before = min(0, *(span[0] for span, _ in forward), 0)
        if max(behind[1] - now_behind, 0) <= max(now_before - before[0], 0):
            backward = sorted([*backward, (behind, number)])
        else:
            forward = sorted([*forward, (before, number)])
    return [number for _, number in backward + forward]


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


def _behind(taken: list[tuple[Span, int]], item: Item) -> Span:
    start = max([item.ready_ns, *(span[1] for span, _ in taken)])
    return start, start + item.duration_ns


def _before(taken: list[tuple[Span, int]], item: Item) -> Span:
    end = min([item.due_ns, *(span[0] for span, _ in taken)])
    return end - item.duration_ns, end
