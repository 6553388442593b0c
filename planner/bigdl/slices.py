"""Slices of a gradient: one contiguous slice for each node, sizes differing by at most one element.

Slice i starts at ``i·(E div N) + min(i, E mod N)``; the first E mod N slices are one element
longer. With fewer elements than nodes the last slices are empty. Nothing is stored.

Complexity: O(1) a slice. Source: BigDL's ``AllReduceParameter``; Venkataraman, Ding and Ermolin,
section "Communications in BigDL".
"""

__all__ = ["largest_slice", "slice_of"]


def slice_of(elements: int, nodes: int, index: int) -> tuple[int, int]:
    """Return the first element of a slice, and the element after its last."""
    length, longer = divmod(elements, nodes)
    start = index * length + min(index, longer)
    return start, start + length + (index < longer)


def largest_slice(elements: int, nodes: int) -> int:
    """Return the size of the largest slice, in elements."""
    return -(-elements // nodes)
