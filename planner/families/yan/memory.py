"""The best layers of one triple under a memory limit: a resource-constrained shortest path.

Problem: as `planner.families.yan.layerwise`, but a worker must have room for the largest segment of
every layer, so that the configuration fits wherever segments are placed. Method: Lagrangian
relaxation of the memory limit, then labels (`planner.families.yan.layer_program`); see docs/yan.md,
"When memory is short".

Guarantee: the least time of all configurations that fit. Complexity: one dynamic program on a few
choices for each price, then that of the labels. Source: own, after Handler and Zang, "A dual
algorithm for the constrained shortest path problem", Networks 1980.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from planner.families.yan.configuration import Triple
from planner.families.yan.layer_program import Chosen, Exact, LayerState, Limit, best_path, state_at
from planner.families.yan.layerwise import Layerwise
from planner.families.yan.problem import Problem
from planner.families.yan.segments import worker_bytes
from planner.families.yan.tables import Array, Choice

PRICES = 40
"""Most prices of memory that are tried."""


class Memory:
    """Bytes of each layer's largest segment, computed on first use; `room` is the limit (bytes)."""

    def __init__(self, problem: Problem, room: int) -> None:
        self.room = room
        self.threads = problem.threads
        self.of = cache(partial(worker_bytes, problem))
        self._row = cache(self._bytes)

    def _bytes(self, place: int, partitions: int) -> Array:
        return np.array([float(self.of(place, partitions, h + 1)) for h in range(self.threads)])

    def sizes(self, options: Sequence[Sequence[Choice]]) -> list[Array]:
        """Return the bytes of each layer's choices, by choice and threads."""
        return [
            np.array([self._row(place, p) for p, _ in choices])
            for place, choices in enumerate(options)
        ]

    def fits(self, states: Sequence[LayerState]) -> bool:
        """Return whether a worker has room for the largest segment of every layer."""
        needed = (
            self.of(place, state.partitions, state.threads) for place, state in enumerate(states)
        )
        return sum(needed) <= self.room


class Fitting(NamedTuple):
    """The best layers of a triple that fit, with the exact time of an epoch (ns)."""

    epoch: Fraction
    states: tuple[LayerState, ...]
    examined: int  # states


def fitting(layerwise: Layerwise, memory: Memory, exact: Exact, triple: Triple) -> Fitting | None:
    """Return the best layers that fit, or None."""
    lowest = layerwise.lowest(triple)
    sizes = memory.sizes(layerwise.choices(triple.workers))
    if sum(int(size.min()) for size in sizes) > memory.room:
        return None
    best, price = _priced(layerwise, memory, triple, lowest, sizes)
    priced = [low + price * size for low, size in zip(lowest, sizes, strict=True)]
    least = [costs.min() for costs in priced]
    # Times and bytes at their price are compared together, so rounding grows with both.
    cap = (best.epoch + price * memory.room) * (1 + 4 * layerwise.tables.error)
    keep = [costs - low + sum(least) <= cap for costs, low in zip(priced, least, strict=True)]
    program = layerwise.kept(triple, keep)
    limit = Limit(memory.sizes(program.options), memory.room, price)
    found = best_path(program, exact, triple, limit, cap)
    epoch, states = found or (exact.epoch(triple, best.states), best.states)
    return Fitting(epoch, states, int(sum(kept.sum() for kept in keep)))


def smallest(layerwise: Layerwise, memory: Memory, triple: Triple) -> tuple[LayerState, ...]:
    """Return the states that need least memory."""
    options = layerwise.choices(triple.workers)
    return tuple(
        state_at(choices, *divmod(int(size.argmin()), size.shape[1]))
        for choices, size in zip(options, memory.sizes(options), strict=True)
    )


def _priced(
    layerwise: Layerwise, memory: Memory, triple: Triple, lowest: list[Array], sizes: list[Array]
) -> tuple[Chosen, float]:
    """Return layers that fit, and the price of a byte with the highest bound."""
    least = smallest(layerwise, memory, triple)
    best = Chosen(layerwise.time(triple, least), least)
    low, high = 0.0, None
    price, best_price, best_bound = 0.0, 0.0, -np.inf
    start = best.epoch / memory.room
    for _ in range(PRICES):
        priced = [cost + price * size for cost, size in zip(lowest, sizes, strict=True)]
        bound = float(sum(costs.min() for costs in priced)) - price * memory.room
        if bound > best_bound:
            best_price, best_bound = price, bound
        program = layerwise.few(triple, priced)
        charges = [price * size for size in memory.sizes(program.options)]
        states = program.plus(charges).best().states
        if memory.fits(states):
            time = layerwise.time(triple, states)
            if time < best.epoch:
                best = Chosen(time, states)
            high = price
            if price == 0:
                break
        else:
            low = price
        price = (max(2 * price, start * 2.0**-20)) if high is None else (low + high) / 2
    return best, best_price
