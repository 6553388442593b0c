"""Which transfers are drawn as one bar, so that thousands of them stay visible.

Narrow ones of a kind that follow each other closely are one bar: alone they would be thinner than
a line, or hide each other. O(transfers).
"""

from collections.abc import Iterator, Sequence

__all__ = ["NARROW", "runs"]

NARROW = 3
"""Pixels: narrower bars can be joined."""
_CLOSE = 1
"""Pixels between bars that can be joined, at most."""


def runs(spans: Sequence[tuple[str, int, int]], pixel_ns: float) -> Iterator[tuple[int, int]]:
    """Yield the first and the last place of what is drawn as one bar.

    Parameters
    ----------
    spans : sequence of (str, int, int)
        Of each transfer its kind, start and end, by start.
    pixel_ns : float
        How long a pixel is.
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
