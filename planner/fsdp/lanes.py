"""When transfers end on one channel, or on two: the part of the simulator that knows channels.

A channel carries its transfers one after the other in the order in which they are issued. Two
channels that share the links are each half as fast while both are busy; a transfer's end is rounded
up to whole nanoseconds. Whoever issues transfers does so in order of time, and asks for the end of
one only when nothing is issued before that end.

Guarantee: every transfer has all of its time, in order of issue on its channel.
Complexity: O(1) a transfer, amortised. Source: own.
"""

from collections import deque
from typing import Protocol

from planner.fsdp.problem import Channels

__all__ = ["GATHERS", "REDUCES", "Lanes", "lanes_of"]

GATHERS, REDUCES = 0, 1
"""What is carried: parameters, or gradients."""


class Lanes(Protocol):
    """The channels of an iteration."""

    def issue(self, kind: int, duration_ns: int, now: int) -> int:
        """Queue a transfer at a moment; returns its number."""
        ...

    def end(self, transfer: int) -> int:
        """Return when it ends, if nothing is issued before."""
        ...

    def spans(self) -> list[tuple[int, int]]:
        """Return start and end of all transfers in order of their numbers."""
        ...

    def copy(self) -> "Lanes":
        """Return channels in the same state."""
        ...


def lanes_of(channels: Channels) -> Lanes:
    """Return empty channels."""
    return _Shared() if channels == "shared" else _Apart(1 if channels == "one" else 2)


class _Apart:
    """Channels that do not disturb each other."""

    def __init__(self, count: int) -> None:
        self._free = [0] * count
        self._spans: list[tuple[int, int]] = []

    def issue(self, kind: int, duration_ns: int, now: int) -> int:
        lane = kind % len(self._free)
        start = max(now, self._free[lane])
        self._free[lane] = start + duration_ns
        self._spans.append((start, start + duration_ns))
        return len(self._spans) - 1

    def end(self, transfer: int) -> int:
        return self._spans[transfer][1]

    def spans(self) -> list[tuple[int, int]]:
        return self._spans

    def copy(self) -> "_Apart":
        same = _Apart(0)
        same._free, same._spans = [*self._free], [*self._spans]
        return same


class _Shared:
    """Two channels over the same links.

    Work is counted in halves of a nanosecond: two are done in a nanosecond by a channel alone, one
    by each of two.
    """

    def __init__(self) -> None:
        self._now = 0
        self._queues: tuple[deque[int], deque[int]] = (deque(), deque())
        self._left: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int | None] = []

    def issue(self, kind: int, duration_ns: int, now: int) -> int:
        while self._now < now and self._step(now):
            pass
        self._now = max(self._now, now)
        number = len(self._left)
        self._left.append(2 * duration_ns)
        self._starts.append(self._now)
        self._ends.append(None)
        self._queues[kind].append(number)
        return number

    def end(self, transfer: int) -> int:
        while (end := self._ends[transfer]) is None:
            self._step(None)
        return end

    def spans(self) -> list[tuple[int, int]]:
        return [(self._starts[number], self.end(number)) for number in range(len(self._left))]

    def copy(self) -> "_Shared":
        same = _Shared()
        same._now = self._now
        same._queues = (deque(self._queues[0]), deque(self._queues[1]))
        same._left, same._starts, same._ends = [*self._left], [*self._starts], [*self._ends]
        return same

    def _step(self, until: int | None) -> bool:
        """Go on to the next end of a transfer, but not beyond a moment; tell whether it was one."""
        heads = [queue[0] for queue in self._queues if queue]
        if not heads:
            return False
        rate = 2 if len(heads) == 1 else 1
        lasts = min(-(-self._left[head] // rate) for head in heads)
        passed = lasts if until is None else min(lasts, until - self._now)
        self._now += passed
        for head in heads:
            self._left[head] = max(self._left[head] - rate * passed, 0)
        if passed < lasts:
            return False
        for queue in self._queues:
            if queue and not self._left[queue[0]]:
                self._ends[queue.popleft()] = self._now
                if queue:
                    self._starts[queue[0]] = self._now
        return True
