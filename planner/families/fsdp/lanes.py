"""Channels (`lanes`): when transfers start and end; the part of the simulator that models links.

A channel carries its transfers in order of issue. Busy channels that share links divide them
evenly; ends are rounded up to whole nanoseconds. The all-reduce over replicas has its own channel,
as in FSDP2: it follows its reduce-scatter, and the next reduce-scatter does not wait for it.
Callers issue transfers in order of time, and ask for a transfer's end only when nothing is issued
before that end.

Complexity: O(1) per transfer, amortised. Source: own.
"""

from collections import deque
from typing import TypeAlias

from planner.families.fsdp.problem import Channels

GATHERS, REDUCES, SUMS = 0, 1, 2  # all-gathers, reduce-scatters, all-reduces over replicas


def lanes_of(channels: Channels, *, apart: bool = True) -> "Lanes":
    """Return idle channels; `apart` says whether the all-reduce has its own links."""
    if channels == "shared":
        return _Shared((0, 1, 2), 2 if apart else 3)
    if channels == "one" and not apart:
        return _Shared((0, 0, 1), 2)
    return _Apart((0, 0, 1) if channels == "one" else (0, 1, 2))


class _Apart:
    """Channels that share no links."""

    def __init__(self, lanes: tuple[int, int, int]) -> None:
        self._lanes = lanes
        self._free = [0] * (1 + max(lanes))
        self._spans: list[tuple[int, int]] = []

    def issue(self, kind: int, duration_ns: int, now: int, sum_ns: int = 0) -> int:
        """Queue a transfer at time `now` and the all-reduce after it; return the transfer's number.

        The all-reduce, if it takes time, has the next number.
        """
        number = len(self._spans)
        end = self._put(kind, duration_ns, now)
        if sum_ns:
            self._put(SUMS, sum_ns, end)
        return number

    def end(self, transfer: int) -> int:
        """Return the end of a transfer, if nothing is issued before that."""
        return self._spans[transfer][1]

    def spans(self) -> list[tuple[int, int]]:
        """Return (start, end) of all transfers, by number."""
        return self._spans

    def free(self) -> tuple[int, ...]:
        """Return when each channel becomes idle."""
        return tuple(self._free)

    def copy(self) -> "_Apart":
        same = _Apart(self._lanes)
        same._free, same._spans = [*self._free], [*self._spans]
        return same

    def _put(self, kind: int, duration_ns: int, now: int) -> int:
        lane = self._lanes[kind]
        start = max(now, self._free[lane])
        end = self._free[lane] = start + duration_ns
        self._spans.append((start, end))
        return end


class _Shared:
    """Channels that share links; those numbered `together` or more have links of their own.

    The methods are those of `_Apart`.
    Work is counted in sixths of a nanosecond: a channel alone does six per nanosecond, each of two
    does three, each of three does two.
    """

    def __init__(self, lanes: tuple[int, int, int], together: int) -> None:
        self._lanes, self._together = lanes, together
        self._now = 0
        self._queues: list[deque[int]] = [deque() for _ in range(1 + max(lanes))]
        self._left: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int | None] = []
        self._sums: dict[int, int] = {}  # pending all-reduce by its reduce-scatter

    def issue(self, kind: int, duration_ns: int, now: int, sum_ns: int = 0) -> int:
        while self._now < now and self._step(now):
            pass
        self._now = max(self._now, now)
        number = self._new(duration_ns)
        self._queue(kind, number)
        if sum_ns:
            self._sums[number] = self._new(sum_ns)
        return number

    def end(self, transfer: int) -> int:
        while (end := self._ends[transfer]) is None:
            self._step(None)
        return end

    def spans(self) -> list[tuple[int, int]]:
        ends = [self.end(number) for number in range(len(self._left))]
        return list(zip(self._starts, ends, strict=True))

    def free(self) -> tuple[int, ...]:
        return (max((end for _, end in self.copy().spans()), default=0),)

    def copy(self) -> "_Shared":
        same = _Shared(self._lanes, self._together)
        same._now = self._now
        same._queues = [deque(queue) for queue in self._queues]
        same._left, same._starts, same._ends = [*self._left], [*self._starts], [*self._ends]
        same._sums = {**self._sums}
        return same

    def _new(self, duration_ns: int) -> int:
        self._left.append(6 * duration_ns)
        self._starts.append(0)
        self._ends.append(None)
        return len(self._left) - 1

    def _queue(self, kind: int, number: int) -> None:
        queue = self._queues[self._lanes[kind]]
        queue.append(number)
        if len(queue) == 1:
            self._starts[number] = self._now

    def _step(self, until: int | None) -> bool:
        """Advance to the next end of a transfer or to `until`; return whether a transfer ended."""
        heads = [(place, queue[0]) for place, queue in enumerate(self._queues) if queue]
        if not heads:
            return False
        sharing = sum(place < self._together for place, _ in heads)
        rates = {head: 6 // sharing if place < self._together else 6 for place, head in heads}
        lasts = min(-(-self._left[head] // rate) for head, rate in rates.items())
        passed = lasts if until is None else min(lasts, until - self._now)
        self._now += passed
        for head, rate in rates.items():
            self._left[head] = max(self._left[head] - rate * passed, 0)
        if passed < lasts:
            return False
        ended = [(place, head) for place, head in heads if not self._left[head]]
        for place, head in ended:
            self._ends[head] = self._now
            queue = self._queues[place]
            queue.popleft()
            if queue:
                self._starts[queue[0]] = self._now
        for _, head in ended:
            if head in self._sums:
                self._queue(SUMS, self._sums.pop(head))
        return True


Lanes: TypeAlias = _Apart | _Shared
"""The channels of an iteration."""
