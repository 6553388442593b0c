"""Join narrow bars, so that thousands of transfers stay visible.

Consecutive narrow bars of a kind become one bar: single bars would be thinner than a line or hide
each other.

Complexity: O(transfers).
"""

from collections.abc import Iterator, Sequence

__all__ = ["NARROW", "runs"]

NARROW = 3
"""Narrower bars may be joined (pixels)."""
_CLOSE = 1
"""Largest gap between joined bars (pixels)."""


def runs(spans: Sequence[tuple[str, int, int]], pixel_ns: float) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of each joined bar.

    Each span is a transfer's kind, start and end, sorted by start; `pixel_ns` is the duration of a
    pixel.
    """
    first = 0
    for place in range(1, len(spans) + 1):
        if place < len(spans):
            (kind, start, end), (next_kind, next_start, next_end) = spans[place - 1], spans[place]
            narrow = max(end - start, next_end - next_start) < NARROW * pixel_ns
            if kind == next_kind and narrow and next_start - end < _CLOSE * pixel_ns:
                continue
        yield first, place - 1
        first = place
