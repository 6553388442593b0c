"""Prices one training iteration: backward pass, next forward pass, and the transfers beside them.

Steady state: time 0 is the start of the backward pass. The backward ops run one after the other
without waiting. Each transfer leaves once its gradients are ready and the transfer before it has
ended. A forward op starts once the op before it and every transfer it waits for have ended; the
time it waits is a stall. Every transfer of an iteration is waited for by a forward op of it, so
iterations do not reach into each other.

Complexity: O(ops + transfers).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Iteration", "TimedTransfer", "simulate"]


class TimedTransfer(NamedTuple):
    """One transfer of an iteration.

    Attributes
    ----------
    ready_ns : int
        When it may leave at the earliest.
    duration_ns : int
        How long it occupies the network.
    needed_by : int
        Position, in the forward order, of the first op that waits for it.
    """

    ready_ns: int
    duration_ns: int
    needed_by: int


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
    end_ns : int
        End of the forward pass: what the iteration lasts.
    """

    backward: tuple[tuple[int, int], ...]
    forward: tuple[tuple[int, int], ...]
    transfers: tuple[tuple[int, int], ...]
    end_ns: int


def simulate(
    backward_ns: Sequence[int],
    forward_ns: Sequence[int],
    transfers: Sequence[TimedTransfer],
    *,
    barrier: bool = False,
) -> Iteration:
    """Run one iteration.

    Parameters
    ----------
    backward_ns, forward_ns : sequence of int
        Durations of the ops of each pass, in the order in which they run.
    transfers : sequence of TimedTransfer
        In the order in which they leave.
    barrier : bool
        Whether the forward pass waits for all transfers (no overlap with it).
    """
    backward, now = [], 0
    for duration in backward_ns:
        backward.append((now, now + duration))
        now += duration
    spans: list[tuple[int, int]] = []
    arrival = [0] * (len(forward_ns) + 1)
    free = 0
    for transfer in transfers:
        start = max(free, transfer.ready_ns)
        free = start + transfer.duration_ns
        spans.append((start, free))
        waits = 0 if barrier else transfer.needed_by
        arrival[waits] = max(arrival[waits], free)
    forward = []
    for duration, arrived in zip(forward_ns, arrival, strict=False):
        start = max(now, arrived)
        now = start + duration
        forward.append((start, now))
    return Iteration(tuple(backward), tuple(forward), tuple(spans), now)
