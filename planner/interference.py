"""What transfers and computation take from each other while both run.

Problem. Somebody has to send: gloo's threads and the kernel take processor time from the core that
computes, collectives on a GPU take multiprocessors and memory bandwidth. While a transfer of
duration d runs beside computation it lasts σ·d + δ (`slowdown`, and `delay`: a thread that sends
waits for its turn), and takes p = min(d, startup + bytes·rate) from it (processor time):
computation is behind by p when it has ended, at the same rate all the time. What runs while
computation waits takes nothing from it and is not slowed down.

Guarantee. No plan undercuts `bound_beside`. Let C be all computation and D all transfers, alone. An
iteration lasts at least C - (what runs beside) + D: each unit of D beside computation hides 1 - p/d
of a unit, and needs at least σ - p/d of computation to hide behind. So with P the least
processor time of all transfers, ρ the least p/d and r = (1-ρ)/(σ-ρ), every iteration M obeys

1. M ≥ C + P, since a transfer costs computation p, or waiting d ≥ p;
2. M ≥ D + (1-r)·C, and with h before which no gradient is ready and t, the least that is computed
   after a transfer, M ≥ D + (1-r)·(C-h-t) + h + t.

Besides, nothing becomes earlier by interference: every bound without it holds.

Complexity. O(n) for the bounds, O(n log n) for what a schedule does.
Source. Own; that both sides slow each other down: Rashidi et al., "Enabling Compute-Communication
Overlap in Distributed Deep Learning Training Platforms", ISCA 2021.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from planner.costs import TransferCost, least_rate
from planner.errors import InvalidInputError
from planner.validation import set_exact, set_integer, shown

__all__ = [
    "ALONE",
    "Interference",
    "Progress",
    "bound_beside",
    "check_interference",
    "progress",
]

Span = tuple[int, int]

Amount = int | Fraction


@dataclass(frozen=True, slots=True)
class Interference:
    """What a transfer takes from computation beside it, and computation from a transfer.

    Attributes
    ----------
    startup_ns : int
        Processor time of a transfer, whatever its size.
    ns_per_byte : Fraction
        Processor time of each byte of a transfer.
    slowdown : Fraction
        How many times as long a transfer lasts beside computation; at least 1.
    delay_ns : int
        How much longer it lasts there in addition, whatever its size.

    Raises
    ------
    InvalidInputError
        If a number is none, or negative, or the slowdown below 1.
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
        """Whether nothing takes anything from anything."""
        return self == ALONE

    @property
    def half(self) -> "Interference":
        """The same of a half of a transfer: it takes half of what all of it takes."""
        startup, delay = (-(-time // 2) for time in (self.startup_ns, self.delay_ns))
        return Interference(startup, self.ns_per_byte / 2, self.slowdown, delay)

    @property
    def least_ns(self) -> int:
        """What any transfer costs if all of it is beside computation, beside its time alone."""
        return self.startup_ns + self.delay_ns

    def processor_ns(self, size: int, duration_ns: int) -> int:
        """Return what a transfer of a size and a duration takes from computation beside it."""
        sent = ceil(self.ns_per_byte * size) if self.ns_per_byte else 0
        return min(duration_ns, self.startup_ns + sent)

    def beside_ns(self, duration_ns: int) -> int:
        """Return what a transfer of a duration lasts beside computation."""
        lasts = duration_ns if self.slowdown == 1 else ceil(self.slowdown * duration_ns)
        return lasts + (self.delay_ns if duration_ns else 0)


ALONE = Interference()
"""No interference."""


def check_interference(value: object) -> None:
    """Check that a field `interference` is one.

    Raises
    ------
    InvalidInputError
        If it is not.
    """
    if not isinstance(value, Interference):
        raise InvalidInputError("interference", f"expected an Interference, got {shown(value)}")


class Progress(NamedTuple):
    """What is done in a schedule, by the model.

    Attributes
    ----------
    ops : tuple of int or Fraction
        Computation (ns) done in each op's time.
    transfers : tuple of int or Fraction
        How much (ns, of what it lasts alone) of each transfer is done in its time.
    borders : tuple of int
        Into how many stretches starts and ends of transfers divide each op.
    before : tuple of int or Fraction
        Computation (ns) done when each transfer leaves.
    """

    ops: tuple[Amount, ...]
    transfers: tuple[Amount, ...]
    borders: tuple[int, ...]
    before: tuple[Amount, ...]


def progress(
    ops: Sequence[Span],
    transfers: Sequence[Span],
    alone_ns: Sequence[int],
    processor_ns: Sequence[int],
    beside_ns: Sequence[int],
) -> Progress:
    """Return what is done in the times of a schedule, whoever made it.

    Parameters
    ----------
    ops, transfers : sequence of (int, int)
        Start and end of each, in time order; no two ops overlap, nor two transfers.
    alone_ns, processor_ns : sequence of int
        What each transfer lasts alone, and takes from computation if all of it is beside.
    beside_ns : sequence of int
        What each transfer lasts if computation runs beside it all the time.
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
            alone, beside = alone_ns[number], beside_ns[number]
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


def bound_beside(
    interference: Interference,
    compute_ns: int,
    alone_ns: int,
    cost: TransferCost,
    sizes: Sequence[int],
) -> int:
    """Return what no iteration undercuts, in ns: the bounds 1 and 2 of this module.

    Parameters
    ----------
    interference : Interference
        What transfers and computation take from each other.
    compute_ns : int
        All computation of an iteration, C.
    alone_ns : int
        h + t, computation beside which no transfer runs.
    cost : TransferCost
        What a transfer lasts alone.
    sizes : sequence of int
        Bytes of each gradient.
    """
    total = sum(sizes)
    if not total:
        return compute_ns
    startup, per_byte = interference.startup_ns, interference.ns_per_byte
    rate = least_rate(cost, total)
    least_processor = total * min(rate, per_byte + Fraction(startup, total))
    shares = [
        (startup + per_byte * size) / (piece.time(size) + 1)  # times are rounded up
        for piece in cost.pieces()
        for size in (max(piece.start, 1), total if piece.stop is None else min(piece.stop, total))
        if piece.start <= size <= total
    ]
    share = min(Fraction(1), *shares)
    slowdown = interference.slowdown
    hidden = (1 - share) / (slowdown - share) if slowdown > 1 else Fraction(1)
    seen = rate * total + (1 - hidden) * (compute_ns - alone_ns) + alone_ns
    return ceil(max(compute_ns + least_processor, seen))
