"""Pareto fronts: the nondominated candidates; less is better in every criterion.

Complexity: O(n log n) for two criteria (`staircase`), O(n log n + n·kept) for more.
Source: the maxima of a set of vectors, Kung, Luccio, Preparata, J. ACM 22 (1975).
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


def staircase(items: Iterable[T], first: Callable[[T], Any], second: Callable[[T], Any]) -> list[T]:
    """Return the items on the Pareto front of two criteria, by the first; of equal ones the first.

    The first criterion also orders items: further elements of a tuple may rank ties within it.
    """
    best: list[T] = []
    for item in sorted(items, key=first):
        if not best or second(item) < second(best[-1]):
            best.append(item)
    return best


def nondominated(
    items: Iterable[tuple[int, ...]], most: int | None = None
) -> list[tuple[int, ...]]:
    """Return the vectors on the Pareto front, in lexicographic order; at most the first `most`."""
    best: list[tuple[int, ...]] = []
    for item in sorted(items):
        if not any(all(a <= b for a, b in zip(other, item, strict=True)) for other in best):
            best.append(item)
            if len(best) == most:
                break
    return best


def pareto(labels: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return the Pareto-optimal columns (less is better), each once; shape (criteria, labels)."""
    import numpy as np

    left, kept = np.arange(labels.shape[1]), []
    sums = labels.sum(axis=0)
    while len(left):
        best = left[sums[left].argmin()]  # the least sum cannot be dominated
        kept.append(best)
        left = left[(labels[:, left] < labels[:, best, None]).any(axis=0)]
    return np.array(kept, dtype=np.int64)
