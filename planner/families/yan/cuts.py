"""Partitions of layers as arrays, for many partitions and choices at once.

The cuts are those of `planner.families.yan.layers`; consecutive partitions with equal work and
needs are merged into runs.

Complexity: O(P) each. Source: own.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.yan.layers import NeuronLayer

Array = NDArray[np.float64]
Places = NDArray[np.int64]


class Cut(NamedTuple):
    """Cut of a layer into nearly equal ranges of units of `scale` rows, the last up to `end`."""

    units: int
    scale: int
    end: int

    def largest(self, parts: Places) -> Places:
        """Return an upper bound on the rows of the largest part."""
        return -(-self.units // parts) * self.scale + self.end - self.units * self.scale

    def bounds(self, part: Places, parts: Places) -> tuple[Places, Places]:
        """Return the first row, and the end row, of each part."""
        size, larger = np.divmod(self.units, parts)
        start = (part * size + np.minimum(part, larger)) * self.scale
        stop = ((part + 1) * size + np.minimum(part + 1, larger)) * self.scale
        return start, np.where(part + 1 == parts, self.end, stop)


class Runs(NamedTuple):
    """Consecutive partitions first … stop-1 with equal work and equal needed rows low … high-1."""

    first: Places
    stop: Places
    work: Array
    low: Places
    high: Places

    def rows(self, chosen: list[int] | slice) -> "Runs":
        """Return some of the runs."""
        return Runs._make(column[chosen] for column in self)


def runs_of(work: Array, low: Places, high: Places) -> Runs:
    """Return the runs of a layer's partitions."""
    change = (np.diff(work) != 0) | (np.diff(low) != 0) | (np.diff(high) != 0)
    first = np.concatenate(([0], np.flatnonzero(change) + 1))
    stop = np.concatenate((first[1:], [len(work)]))
    return Runs(first, stop, work[first], low[first], high[first])


class FieldArrays(NamedTuple):
    """`planner.families.yan.layers.Fields` as arrays."""

    first: Places
    last: Places
    seen: Places


def passed_units(layer: NeuronLayer, partitions: int) -> Places:
    """Return `NeuronLayer.passed` as an array."""
    size, larger = divmod(layer.units, partitions)
    places = np.arange(partitions + 1)
    return np.asarray(places * size + np.minimum(places, larger))


def held_rows(layer: NeuronLayer, partitions: int) -> Places:
    """Return `NeuronLayer.held` as an array."""
    rows = passed_units(layer, partitions) * layer.pool
    rows[-1] = layer.rows
    return rows
