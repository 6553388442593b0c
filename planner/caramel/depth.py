"""Caramel's adaptive depth: into how many chunks to cut a transfer that is in flight.

Problem: how many chunks for a transfer of a given size? Chunks let one be reduced while another is
sent; each costs a start-up.

Rule: depth is 1 up to the threshold and grows with the size to at most 8. The paper names both ends
and not the law between: here one chunk for each threshold's worth of bytes, so that no chunk is
smaller than what uses the network well.

Guarantee: none for the time; no chunk is smaller than the threshold.

Complexity: O(depths). Source: Caramel §4.4.
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
