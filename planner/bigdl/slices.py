"""How a gradient is cut into as many slices as there are nodes.

Problem: cut E elements into N contiguous slices whose sizes differ by one element at most.

Method: slice i starts at ``i·(E div N) + min(i, E mod N)``; the first E mod N slices are one
element longer. With fewer elements than nodes the last slices are empty.

Complexity: O(1) a slice, nothing is stored.
Source: BigDL's ``AllReduceParameter``; Venkataraman, Ding and Ermolin, "Accelerating Deep Learning
Training with BigDL and Drizzle on Apache Spark", section "Communications in BigDL".
"""

__all__ = ["largest_slice", "slice_of"]


def slice_of(elements: int, nodes: int, index: int) -> tuple[int, int]:
    """Return where a slice starts, and the element after its last."""
    length, longer = divmod(elements, nodes)
    start = index * length + min(index, longer)
    return start, start + length + (index < longer)


def largest_slice(elements: int, nodes: int) -> int:
    """Return the size of the largest slice, in elements."""
    return -(-elements // nodes)
