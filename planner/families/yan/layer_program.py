"""Dynamic program over layers: the least time of an epoch among given choices of each layer.

Problem: given the choices of each layer, their own costs, and the costs of choices of consecutive
layers, find the choices with the least sum.

Method: with F and B the times of feed-forward and back-propagation between two layers, the least
time up to layer l is V(l, b, H) = own(l, b, H) + min_a [F(l, a, b, H) + left(l, a, b)], where
left(l, a, b) = min_H' [V(l-1, a, H') + B(l-1, a, b, H')].

Guarantee: the least sum, except for rounding. Complexity: O(L·K·C²) for C choices a layer.
Source: as `planner.families.yan.layerwise`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.yan.cuts import Array
from planner.families.yan.tables import Choice, Tables
from planner.solving.deadline import NEVER, Deadline

Rows = NDArray[np.int64]

MAX_BLOCK = 2**21
"""Elements of the largest temporary array."""


class LayerState(NamedTuple):
    """How one layer is run."""

    partitions: int
    copies: int
    threads: int

    @property
    def choice(self) -> Choice:
        """Partitions and copies."""
        return self.partitions, self.copies


def state_at(options: Sequence[Choice], row: int, column: int) -> LayerState:
    """Return the state of a row (choice) and a column (threads) of an array."""
    return LayerState(*options[row], threads=column + 1)


class Triple(NamedTuple):
    """Workers of a replica, replicas and parameter servers."""

    workers: int
    replicas: int
    servers: int


class Chosen(NamedTuple):
    """The layers of a triple, and the time of an epoch (ns, except for rounding)."""

    epoch: float
    states: tuple[LayerState, ...]


@dataclass(frozen=True)
class LayerProgram:
    """The dynamic program on the remaining choices; TimeUpError at the deadline."""

    tables: Tables
    options: Sequence[Sequence[Choice]]
    own: Sequence[Array]  # each layer's own costs, by choice and threads; infinite where cut
    replicas: int
    limit: float = float("inf")  # longer paths are cut
    rest: Sequence[float] = ()  # lower bound on the layers after each layer
    deadline: Deadline = NEVER

    def plus(self, extra: Sequence[Array]) -> "LayerProgram":
        """Return the program with an extra cost for each state."""
        own = [cost + more for cost, more in zip(self.own, extra, strict=True)]
        return replace(self, own=own)

    def blocks(self, place: int, rows: Rows) -> Iterator[tuple[slice, Array, Array]]:
        """Yield blocks of feed-forward of layer `place` and back-propagation of the layer before.

        By choice of the layer before (`rows`), choice of the layer, and threads. A block has few
        choices of the layer, so that memory does not grow with the square of their number.
        """
        before = [self.options[place - 1][row] for row in rows.tolist()]
        if not before:
            return
        options = self.options[place]
        step = max(1, MAX_BLOCK // (len(before) * self.tables.problem.threads))
        for start in range(0, len(options), step):
            self.deadline.check()
            block = slice(start, start + step)
            ahead, back = self.tables.pair(place, before, options[block])
            yield block, ahead / self.replicas, back / self.replicas

    @cached_property
    def values(self) -> tuple[list[Array], list[Array]]:
        """V of every layer; and for every layer but the first `left`, by pairs of choices."""
        values, between = [self._alive(0, self.own[0])], []
        for place in range(1, len(self.options)):
            value = values[-1]
            rows = np.flatnonzero(np.isfinite(value).any(axis=1))  # choices with a remaining state
            left = np.full((len(value), len(self.options[place])), np.inf)
            arrived = np.full_like(self.own[place], np.inf)
            for block, ahead, back in self.blocks(place, rows):
                # left(l, a, b) = min_H' [V + B], then min_a [F + left]
                arriving = (value[rows, None, :] + back).min(axis=2)
                left[rows, block] = arriving
                arrived[block] = (ahead + arriving[:, :, None]).min(axis=0)
            values.append(self._alive(place, self.own[place] + arrived))
            between.append(left)
        return values, between

    def _alive(self, place: int, value: Array) -> Array:
        """Return V, infinite where the rest makes a path too long."""
        rest = self.rest[place] if self.rest else 0.0
        return np.where(value + rest <= self.limit, value, np.inf)

    def best(self) -> Chosen:
        """Return the best of the remaining choices."""
        values, between = self.values
        last = len(values) - 1
        b, h = divmod(int(values[-1].argmin()), values[-1].shape[1])
        states = [state_at(self.options[last], b, h)]
        # Recompute the sums to find the choice and threads that attain each least value, the first
        # of equal ones.
        for place in range(last, 0, -1):
            before = self.options[place - 1]
            ahead, back = self.tables.pair(place, before, [self.options[place][b]])
            a = int((ahead[:, 0, h] / self.replicas + between[place - 1][:, b]).argmin())
            h = int((values[place - 1][a] + back[a, 0] / self.replicas).argmin())
            b = a
            states.append(state_at(before, b, h))
        return Chosen(float(values[-1].min()), tuple(reversed(states)))

    def togo(self, charges: Sequence[Array] | None = None) -> list[Array]:
        """Return the least cost after each state of each layer, `charges` included."""
        rest = np.zeros_like(self.own[-1])
        togo = [rest]
        for place in range(len(self.options) - 1, 0, -1):
            inner = self.own[place] + rest
            if charges is not None:
                inner = inner + charges[place]
            rest = np.full_like(self.own[place - 1], np.inf)
            rows = np.arange(len(rest))
            for block, ahead, back in self.blocks(place, rows):
                right = (ahead + inner[block][None]).min(axis=2)
                rest = np.minimum(rest, (back + right[:, :, None]).min(axis=1))
            togo.append(rest)
        return togo[::-1]
