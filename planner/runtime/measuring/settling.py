"""How long to time transfers, chosen from the link; needs no torch.

Problem. A shaped link passes a burst at full speed, and then only what its rate allows: a few
transfers after a pause look faster than the many that training sends one after the other. How many
have to pass before times can be believed depends on the link.

Method. A series of transfers without pauses, begun after a pause. What its last half takes is
steady: the median of the means of its quarters, so that a single disturbance does not count. A
sample begins with the first transfers if their mean is steady already; else behind as many untimed
ones, doubled until the mean of the next as many is steady. Only transfers that are too fast matter:
what disturbs them makes them slower. A series that does not show it is followed by a longer one.

Guarantee. If the burst is spent in the first half of the last series, the mean of a sample like
that of the series is at most 2 % below the steady time. A plan sends everything in the size that
looks cheapest, so that what one size is off is what the plan is off.

Complexity. O(n) for n transfers; at most 1,000 in a series.

Source. Own; the token bucket is that of ``tc tbf``.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import NamedTuple

__all__ = ["SAMPLE_NS", "Sample", "repeats", "settle"]

SAMPLE_NS = 20_000_000
"""How long a sample takes at least, however short a transfer is."""

SERIES_NS = (50_000_000, 100_000_000, 200_000_000, 400_000_000)
"""How long series are, one after the other, until one has settled."""

_LONG_NS = 500_000_000
"""A single transfer of this length outlasts any burst that matters."""

_MOST_REPEATS = 1000
_TRIES = 4

_FAST = 0.98
"""Transfers that take less than this share of the steady time are too fast."""


class Sample(NamedTuple):
    """What to do for one measurement of a size.

    Attributes
    ----------
    lead : int
        Transfers that are not timed.
    timed : int
        Transfers after them, whose mean time is measured.
    """

    lead: int
    timed: int


def settle(series: Callable[[int], Sequence[int]], once_ns: int) -> Sample:
    """Return how to time a transfer.

    Parameters
    ----------
    series : callable
        Carries out so many transfers without pauses, after one; returns what each one took, in ns.
    once_ns : int
        What a single transfer takes, about.
    """
    if once_ns >= _LONG_NS:
        return Sample(0, 1)
    times: Sequence[int] = ()
    for series_ns in SERIES_NS:
        for _ in range(_TRIES):
            times = series(max(repeats(series_ns, once_ns), 4))
            if 2 * sum(times) >= series_ns or len(times) == _MOST_REPEATS:
                break
            once_ns = max(sum(times) // len(times), 1)  # less than was thought
        if (sample := _sample_of(times)) is not None:
            return sample
    return Sample(len(times) // 2, len(times) // 2)


def repeats(length_ns: int, once_ns: int) -> int:
    """Return how many transfers take some time together, at least 1 and at most 1,000."""
    return min(max(round(length_ns / once_ns), 1), _MOST_REPEATS)


def _sample_of(times_ns: Sequence[int]) -> Sample | None:
    """Return the shortest sample that is steady; None if the series has not settled."""
    half = len(times_ns) // 2
    width = -(-half // 4)
    steady = median(
        fmean(times_ns[start : start + width]) for start in range(half, len(times_ns), width)
    )
    count = min(repeats(SAMPLE_NS, max(round(steady), 1)), half)
    if fmean(times_ns[:count]) >= _FAST * steady:
        return Sample(0, count)
    lead = count
    while 2 * lead <= half:
        if fmean(times_ns[lead : 2 * lead]) >= _FAST * steady:
            return Sample(lead, lead)
        lead *= 2
    return None
