"""When transfers end on the channels there are: the part of the simulator that knows channels.

A channel carries its transfers one after the other in the order in which they are issued. Channels
that share links divide these evenly: of n that are busy each is an n-th as fast; a transfer's end
is rounded up to whole nanoseconds. The all-reduce among copies of a mesh has a channel of its own,
as in FSDP2: it follows its reduce-scatter, and the next reduce-scatter does not wait for it.
Whoever issues transfers does so in order of time, and asks for the end of one only when nothing is
issued before that end.

Guarantee: every transfer has all of its time, in order of issue on its channel.
Complexity: O(1) a transfer, amortised. Source: own.
"""

from collections import deque
from typing import Protocol

from planner.fsdp.problem import Channels

__all__ = ["GATHERS", "REDUCES", "SUMS", "Lanes", "lanes_of"]

GATHERS, REDUCES, SUMS = 0, 1, 2
"""What is carried: parameters, gradients, or their sums over copies."""


class Lanes(Protocol):
    """The channels of an iteration."""

    def issue(self, kind: int, duration_ns: int, now: int, sum_ns: int = 0) -> int:
        """Queue a transfer at a moment, and the all-reduce behind it; returns its number.

        The all-reduce, if it takes any time, has the number that follows.
        """
        ...

    def end(self, transfer: int) -> int:
        """Return when it ends, if nothing is issued before."""
        ...

    def spans(self) -> list[tuple[int, int]]:
        """Return start and end of all transfers in order of their numbers."""
        ...

    def free(self) -> tuple[int, ...]:
        """Return when each channel has carried all that was issued."""
        ...

    def copy(self) -> "Lanes":
        """Return channels in the same state."""
        ...


def lanes_of(channels: Channels, *, apart: bool = True) -> Lanes:
    """Return empty channels.

    Parameters
    ----------
    channels : {"one", "two", "shared"}
        Of gathers and reduce-scatters.
    apart : bool
        Whether the all-reduce has links of its own, as `planner.fsdp.Problem.apart` says.
    """
    if channels == "shared":
        return _Shared((0, 1, 2), 2 if apart else 3)
    if channels == "one" and not apart:
        return _Shared((0, 0, 1), 2)
    return _Apart((0, 0, 1) if channels == "one" else (0, 1, 2))


class _Apart:
    """Channels that do not disturb each other."""

    def __init__(self, lanes: tuple[int, int, int]) -> None:
        self._lanes = lanes
        self._free = [0] * (1 + max(lanes))
        self._spans: list[tuple[int, int]] = []

    def issue(self, kind: int, duration_ns: int, now: int, sum_ns: int = 0) -> int:
        number = len(self._spans)
        end = self._put(kind, duration_ns, now)
        if sum_ns:
            self._put(SUMS, sum_ns, end)
        return number

    def end(self, transfer: int) -> int:
        return self._spans[transfer][1]

    def spans(self) -> list[tuple[int, int]]:
        return self._spans

    def free(self) -> tuple[int, ...]:
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
    """Channels over the same links; those from a number on have links of their own.

    Work is counted in sixths of a nanosecond: six are done in a nanosecond by a channel alone,
    three by each of two, two by each of three.
    """

    def __init__(self, lanes: tuple[int, int, int], together: int) -> None:
        self._lanes, self._together = lanes, together
        self._now = 0
        self._queues: list[deque[int]] = [deque() for _ in range(1 + max(lanes))]
        self._left: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int | None] = []
        self._sums: dict[int, int] = {}  # reduce-scatters with an all-reduce to come

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
        """Go on to the next end of a transfer, but not beyond a moment; tell whether it was one."""
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
