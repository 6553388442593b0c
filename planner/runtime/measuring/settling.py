"""Choose how many transfers to time on a link that passes bursts (token bucket). Needs no torch.

Problem: After a pause a shaped link passes a burst at full speed, so the first transfers look
faster than the sequence of transfers in training.
Method: Time a series after a pause. Its steady time is the median of the quarter means of its
second half. A sample starts after 0, n, 2n, 4n … transfers, as soon as the next ones are steady. A
series that never becomes steady is followed by a longer one.
Guarantee: If the burst ends in the first half of the last series, a sample is at most 2 % faster
than the steady time. See docs/runtime.md.
Complexity: O(n) for n transfers, at most 1,000 per series.
Source: own; the token bucket is that of ``tc tbf``.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import NamedTuple

SAMPLE_NS = 20_000_000
"""Least duration of a sample."""

SERIES_NS = (50_000_000, 100_000_000, 200_000_000, 400_000_000)
"""Durations of the series, tried in order until one is steady."""

_LONG_NS = 500_000_000
"""A single transfer of this duration outlasts any relevant burst."""

_MOST_REPEATS = 1000
_TRIES = 4

_FAST = 0.98
"""Transfers below this share of the steady time are too fast."""


class Sample(NamedTuple):
    """One measurement: `lead` untimed transfers, then `timed` ones, whose mean counts."""

    lead: int
    timed: int


def settle(series: Callable[[int], Sequence[int]], once_ns: int) -> Sample:
    """Return how to time a transfer that takes about `once_ns`.

    `series` runs the given number of transfers without pauses after a pause, and returns their
    times (ns).
    """
    if once_ns >= _LONG_NS:
        return Sample(0, 1)
    times: Sequence[int] = ()
    for series_ns in SERIES_NS:
        for _ in range(_TRIES):
            times = series(max(repeats(series_ns, once_ns), 4))
            if 2 * sum(times) >= series_ns or len(times) == _MOST_REPEATS:
                break
            once_ns = max(sum(times) // len(times), 1)  # the estimate was too long
        if (sample := _sample_of(times)) is not None:
            return sample
    return Sample(len(times) // 2, len(times) // 2)


def repeats(length_ns: int, once_ns: int) -> int:
    """Return how many transfers take `length_ns` together, from 1 to 1,000."""
    return min(max(round(length_ns / once_ns), 1), _MOST_REPEATS)


def _sample_of(times_ns: Sequence[int]) -> Sample | None:
    """Return the shortest steady sample; None if the series is not steady."""
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
