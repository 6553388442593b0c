"""Contention (`Interference`): transfers and computation slow each other down while they overlap.

Problem: gloo's threads and the kernel take processor time from the core that computes; collectives
on a GPU take multiprocessors and memory bandwidth. A transfer of duration d that overlaps
computation lasts σ·d + δ (`slowdown`; `delay`: a sending thread waits to be scheduled) and takes
processor time p = min(d, start-up + bytes·rate) from computation, at a constant rate. While
computation waits, neither slows the other down.

Guarantee: `contention_bound` is a lower bound on every iteration; proof: docs/calibration.md.
Complexity: O(n) for the bounds, O(n log n) for the progress of a schedule.
Source: own. Mutual slowdown: Rashidi et al., "Enabling Compute-Communication Overlap …", ISCA 2021.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from planner.model.costs import TransferCost, least_rate, piece_ends
from planner.model.errors import InvalidInputError
from planner.model.validation import set_exact, set_integer, shown

Span = tuple[int, int]

Amount = int | Fraction


@dataclass(frozen=True, slots=True)
class Interference:
    """Contention parameters: how transfers slow down overlapping computation, and vice versa.

    Attributes
    ----------
    startup_ns : int
        Processor time of a transfer, independent of its size.
    ns_per_byte : Fraction
        Processor time per byte of a transfer.
    slowdown : Fraction
        Factor on the duration of a transfer that overlaps computation; at least 1.
    delay_ns : int
        Time that such a transfer takes in addition, independent of its size.

    Raises
    ------
    InvalidInputError
        If a value is not a number, negative, or the slowdown below 1.
    """

    startup_ns: int = 0
    ns_per_byte: Fraction = Fraction(0)
    slowdown: Fraction = Fraction(1)
    delay_ns: int = 0

    def __post_init__(self) -> None:
        set_integer(self, "startup_ns")
        set_integer(self, "delay_ns")
        set_exact(self, "ns_per_byte")
        set_exact(self, "slowdown")
        if self.slowdown < 1:
            raise InvalidInputError(
                "slowdown", f"expected a number >= 1, got {shown(float(self.slowdown))}"
            )

    @property
    def is_none(self) -> bool:
        """Whether there is no contention."""
        return self == NO_CONTENTION

    @property
    def half(self) -> "Interference":
        """Contention of half a transfer (a push or a pull): half of each cost."""
        startup, delay = (-(-time // 2) for time in (self.startup_ns, self.delay_ns))
        return Interference(startup, self.ns_per_byte / 2, self.slowdown, delay)

    @property
    def least_ns(self) -> int:
        """Least extra time (ns) of a transfer that fully overlaps computation."""
        return self.startup_ns + self.delay_ns

    def sending_ns(self, size: int) -> int | None:
        """Return the processor time (ns) of sending a number of bytes; None without contention."""
        return None if self.is_none else ceil(self.ns_per_byte * size)

    def processor_ns(self, size: int, duration_ns: int) -> int:
        """Return the processor time (ns) that a transfer takes from overlapping computation."""
        sent = ceil(self.ns_per_byte * size) if self.ns_per_byte else 0
        return min(duration_ns, self.startup_ns + sent)

    def overlapped_ns(self, duration_ns: int) -> int:
        """Return the duration (ns) of a transfer that overlaps computation all the time."""
        lasts = duration_ns if self.slowdown == 1 else ceil(self.slowdown * duration_ns)
        return lasts + (self.delay_ns if duration_ns else 0)


NO_CONTENTION = Interference()  # no contention


def check_interference(value: object) -> None:
    """Raise an error unless a field `interference` is an Interference."""
    if not isinstance(value, Interference):
        raise InvalidInputError("interference", f"expected an Interference, got {shown(value)}")


class Progress(NamedTuple):
    """The work that a schedule completes, by the model."""

    ops: tuple[Amount, ...]  # computation (ns) done during each op
    transfers: tuple[Amount, ...]  # part (ns, of the duration alone) of each transfer done
    borders: tuple[int, ...]  # number of intervals into which transfers divide each op
    before: tuple[Amount, ...]  # computation (ns) done when each transfer starts


def progress(
    ops: Sequence[Span],
    transfers: Sequence[Span],
    alone_ns: Sequence[int],
    processor_ns: Sequence[int],
    overlapped_ns: Sequence[int],
) -> Progress:
    """Return the work that a schedule completes according to the model.

    `ops` and `transfers` are (start, end) in time order, without overlap among themselves. For each
    transfer, `alone_ns` is its duration without computation, `overlapped_ns` its duration with
    computation all the time, and `processor_ns` the processor time that it takes then.
    """
    moments = sorted({moment for span in (*ops, *transfers) for moment in span})
    of_ops: list[Amount] = [0] * len(ops)
    of_transfers: list[Amount] = [0] * len(transfers)
    borders = [0] * len(ops)
    reached: dict[int, Amount] = {}
    done: Amount = 0
    place = number = 0
    for now, then in pairwise((*moments, *moments[-1:])):
        reached[now] = done
        while place < len(ops) and ops[place][1] <= now:
            place += 1
        while number < len(transfers) and transfers[number][1] <= now:
            number += 1
        computes = place < len(ops) and ops[place][0] <= now
        sends = number < len(transfers) and transfers[number][0] <= now
        share: Amount = 1 if computes else 0
        if sends:
            alone, beside = alone_ns[number], overlapped_ns[number]
            slower = computes and beside > alone
            of_transfers[number] += Fraction(alone * (then - now), beside) if slower else then - now
            if computes and processor_ns[number]:
                share -= Fraction(processor_ns[number], beside)
        if computes:
            of_ops[place] += share * (then - now)
            borders[place] += 1
        done += share * (then - now)
    before = (reached[start] for start, _ in transfers)
    return Progress(tuple(of_ops), tuple(of_transfers), tuple(borders), tuple(before))


def contention_bound(
    interference: Interference,
    compute_ns: int,
    alone_ns: int,
    cost: TransferCost,
    sizes: Sequence[int],
) -> int:
    """Return the lower bound (ns) on an iteration under contention.

    `compute_ns` is all computation of an iteration, C; `alone_ns` the part that no transfer can
    overlap, h + t; `cost` that of a transfer without computation; `sizes` the gradients' bytes.
    """
    total = sum(sizes)
    if not total:
        return compute_ns
    startup, per_byte = interference.startup_ns, interference.ns_per_byte
    rate = least_rate(cost, total)
    least_processor = total * min(rate, per_byte + Fraction(startup, total))
    shares = [
        (startup + per_byte * size) / (piece.time(size) + 1)  # times are rounded up
        for piece, size in piece_ends(cost, total)
    ]
    share = min(Fraction(1), *shares)
    slowdown = interference.slowdown
    hidden = (1 - share) / (slowdown - share) if slowdown > 1 else Fraction(1)
    seen = rate * total + (1 - hidden) * (compute_ns - alone_ns) + alone_ns
    return ceil(max(compute_ns + least_processor, seen))
