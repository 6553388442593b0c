"""Prices one training iteration: backward pass, next forward pass, and the transfers beside them.

Steady state: time 0 is the start of the backward pass. The backward ops run one after the other
without waiting. Each transfer leaves once its gradients are ready and the transfer before it has
ended. A forward op starts once the op before it and every transfer it waits for have ended; the
time it waits is a stall. Every transfer of an iteration is waited for by a forward op of it, so
iterations do not reach into each other.

While a transfer runs beside computation both may be slower (`planner.interference`): the transfer
lasts longer, and takes its processor time from computation at a constant rate.
Readiness is therefore asked of the computation that is done, not of the clock. Times are rounded up
to whole nanoseconds whenever a transfer ends or computation begins to wait.

Where the backward pass is held, it waits, when a transfer may leave, for the one before; the op
that waits lasts as much longer.

Complexity: O(ops + transfers). Source: own.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

__all__ = ["Iteration", "TimedTransfer", "simulate"]


class TimedTransfer(NamedTuple):
    """One transfer of an iteration.

    Attributes
    ----------
    ready_ns : int
        How much of the backward pass has to be done before it may leave.
    duration_ns : int
        How long it occupies the network if nothing is computed beside it.
    needed_by : int
        Position, in the forward order, of the first op that waits for it.
    not_before_ns : int
        When it may leave at the earliest, ready or not.
    processor_ns : int
        What it takes from computation beside it; at most its duration.
    slower_ns : int
        How much longer it lasts beside computation.
    """

    ready_ns: int
    duration_ns: int
    needed_by: int
    not_before_ns: int = 0
    processor_ns: int = 0
    slower_ns: int = 0


@dataclass(frozen=True, slots=True)
class Iteration:
    """When everything in an iteration happens.

    Attributes
    ----------
    backward : tuple of (int, int)
        Start and end of each backward op, in the order in which they run.
    forward : tuple of (int, int)
        The same of the forward ops.
    transfers : tuple of (int, int)
        Start and end of each transfer, in the order in which they leave.
    ready : tuple of int
        When each transfer could have left, were the channel free.
    end_ns : int
        End of the forward pass: what the iteration lasts.
    """

    backward: tuple[tuple[int, int], ...]
    forward: tuple[tuple[int, int], ...]
    transfers: tuple[tuple[int, int], ...]
    ready: tuple[int, ...]
    end_ns: int

    @property
    def undisturbed(self) -> tuple[int, ...]:
        """When each forward op, and the end, would come if the forward pass never waited."""
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
    """Run one iteration.

    Parameters
    ----------
    backward_ns, forward_ns : sequence of int
        Durations of the ops of each pass, in the order in which they run, without transfers beside.
    transfers : sequence of TimedTransfer
        In the order in which they leave.
    barrier : bool
        Whether the forward pass waits for all transfers (no overlap with it).
    held : bool
        Whether nothing is computed between the moments at which a transfer may leave and at which
        the one before has ended. Transfers are ready in order then.
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
    """How much has been computed by when; between two moments at a constant rate."""

    def __init__(self) -> None:
        self._moments, self._amounts = [0], [0]

    @property
    def now(self) -> int:
        return self._moments[-1]

    def reach(self, amount: int) -> None:
        """Compute alone until so much is done."""
        missing = amount - self._amounts[-1]
        if missing > 0:
            self._go(missing, missing)

    def run(self, duration_ns: int, limit: int) -> None:
        """Compute alone for some time, but no more than up to a limit."""
        if duration_ns <= 0:
            return
        left = max(min(duration_ns, limit - self._amounts[-1]), 0)
        self._go(left, left)
        self._go(duration_ns - left, 0)

    def run_beside(self, transfer: TimedTransfer, limit: int) -> None:
        """Compute beside a transfer until it ends, but no more than up to a limit."""
        alone = transfer.duration_ns
        beside = alone + transfer.slower_ns
        gain, left = beside - transfer.processor_ns, limit - self._amounts[-1]
        if gain <= left:
            self._go(beside, gain)
        else:  # computation waits before the transfer ends
            self._go(-(-beside * left // gain), left)
            self._go(alone - alone * left // gain, 0)

    def when(self, amount: int) -> int:
        """Return when so much was done first."""
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
