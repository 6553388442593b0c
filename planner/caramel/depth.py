"""Caramel's adaptive depth: the number of chunks of a transfer.

Problem: chunks let the reduction of one overlap the sending of another, but each costs a start-up.
Rule: depth 1 up to the threshold, then one chunk per threshold's worth of bytes, at most 8. The
paper gives both ends of this range but no rule in between.
Guarantee: none for the time. No chunk is smaller than the threshold.
Complexity: O(depths).
Source: Caramel §4.4.
"""

from collections.abc import Iterable

__all__ = ["MAX_DEPTH", "adaptive_depth"]

MAX_DEPTH = 8


def adaptive_depth(
    size: int, threshold: int | None, known: Iterable[int] = range(1, MAX_DEPTH + 1)
) -> int:
    """Return the depth of a transfer of `size` bytes, one of the `known` depths.

    A threshold of None means that no size uses the network well: depth 1.
    """
    if threshold is None or size <= threshold:
        return 1
    wanted = min(MAX_DEPTH, size // max(threshold, 1))
    return max((depth for depth in known if depth <= wanted), default=1)
