"""Simulate one training iteration: backward pass, next forward pass, and overlapping transfers.

Steady state: time 0 is the start of the backward pass, whose ops run without waiting. A transfer
starts once its gradients are ready and the previous transfer has ended. A forward op starts once
the previous op and all transfers it needs have ended; its waiting time is a stall. A forward op
waits for every transfer, so iterations do not overlap. Under contention
(`planner.model.contention`) a transfer lasts longer and slows computation at a constant rate;
readiness is then measured in computation done. Times are rounded up at each transfer's end and at
each wait. If the backward pass waits (`held`), the op that waits lasts longer.

Complexity: O(ops + transfers). Source: own.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple


class TimedTransfer(NamedTuple):
    """One transfer of an iteration."""

    ready_ns: int  # computation of the backward pass that must be done before
    duration_ns: int  # without overlapping computation
    needed_by: int  # position, in forward order, of the first op that waits
    not_before_ns: int = 0  # earliest start, even if ready before
    processor_ns: int = 0  # taken from overlapping computation; at most the duration
    slower_ns: int = 0  # extra duration if it overlaps computation


@dataclass(frozen=True, slots=True)
class Iteration:
    """The times of one iteration: (start, end) of each op and each transfer, in execution order."""

    backward: tuple[tuple[int, int], ...]
    forward: tuple[tuple[int, int], ...]
    transfers: tuple[tuple[int, int], ...]
    ready: tuple[int, ...]  # earliest start of each transfer if the channel were free
    end_ns: int  # end of the forward pass

    @property
    def undisturbed(self) -> tuple[int, ...]:
        """Start of each forward op, and the end, if the forward pass never waited."""
        begin = self.backward[-1][1] if self.backward else 0
        return tuple(accumulate((end - start for start, end in self.forward), initial=begin))


def simulate(
    backward_ns: Sequence[int],
    forward_ns: Sequence[int],
    transfers: Sequence[TimedTransfer],
    *,
    barrier: bool = False,
    held: bool = False,
) -> Iteration:
    """Return the times of one iteration.

    Durations are those without overlapping transfers; all sequences are in execution order. With
    `barrier` the forward pass waits for all transfers. With `held` no computation runs between the
    time at which a transfer may start and the end of the previous transfer; transfers are ready in
    order then.
    """
    done = list(accumulate(forward_ns, initial=sum(backward_ns)))  # work before each forward op
    waits = [0 if barrier else transfer.needed_by for transfer in transfers]
    limits = list(accumulate((done[place] for place in reversed(waits)), min))[::-1]
    if held:
        following = [transfer.ready_ns for transfer in transfers[1:]]
        limits = [*map(min, limits, following), *limits[len(following) :]]
    work = _Work()
    spans: list[tuple[int, int]] = []
    arrival = [0] * (len(forward_ns) + 1)
    for transfer, waiting, limit in zip(transfers, waits, limits, strict=True):
        work.reach(transfer.ready_ns)
        work.run(transfer.not_before_ns - work.now, limit)
        start = work.now
        work.run_beside(transfer, limit)
        spans.append((start, work.now))
        arrival[waiting] = max(arrival[waiting], work.now)
    work.reach(done[-1])
    ends = [work.when(end) for end in accumulate(backward_ns)]
    backward = tuple(pairwise((0, *ends)))
    now = ends[-1] if ends else 0
    forward = []
    for duration, end, arrived in zip(forward_ns, done[1:], arrival, strict=False):
        start = max(now, arrived)
        now = work.when(end) if duration else start
        forward.append((start, now))
    ready = tuple(
        max(transfer.not_before_ns, work.when(transfer.ready_ns)) for transfer in transfers
    )
    return Iteration(backward, tuple(forward), tuple(spans), ready, now)


class _Work:
    """Computation done over time; piecewise linear."""

    def __init__(self) -> None:
        self._moments, self._amounts = [0], [0]

    @property
    def now(self) -> int:
        return self._moments[-1]

    def reach(self, amount: int) -> None:
        """Compute without transfers until `amount` is done."""
        missing = amount - self._amounts[-1]
        if missing > 0:
            self._go(missing, missing)

    def run(self, duration_ns: int, limit: int) -> None:
        """Let `duration_ns` pass without transfers; computation stops at `limit`."""
        if duration_ns <= 0:
            return
        left = max(min(duration_ns, limit - self._amounts[-1]), 0)
        self._go(left, left)
        self._go(duration_ns - left, 0)

    def run_beside(self, transfer: TimedTransfer, limit: int) -> None:
        """Let a transfer run to its end; computation stops at `limit`."""
        alone = transfer.duration_ns
        beside = alone + transfer.slower_ns
        gain, left = beside - transfer.processor_ns, limit - self._amounts[-1]
        if gain <= left:
            self._go(beside, gain)
        else:  # computation waits before the transfer ends
            self._go(-(-beside * left // gain), left)
            self._go(alone - alone * left // gain, 0)

    def when(self, amount: int) -> int:
        """Return the first time (ns) at which `amount` was done."""
        place = bisect_left(self._amounts, amount)
        if self._amounts[place] == amount:
            return self._moments[place]
        rest = amount - self._amounts[place - 1]
        gain = self._amounts[place] - self._amounts[place - 1]
        duration = self._moments[place] - self._moments[place - 1]
        return self._moments[place - 1] + -(-rest * duration // gain)

    def _go(self, duration_ns: int, amount: int) -> None:
        if duration_ns:
            self._moments.append(self.now + duration_ns)
            self._amounts.append(self._amounts[-1] + amount)
