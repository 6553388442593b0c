"""The best layers of one triple under a memory limit: a resource-constrained shortest path.

Problem: as `planner.families.yan.layerwise`, but a worker must have room for the largest segment of
every layer, so that the configuration fits wherever segments are placed. Method: Lagrangian
relaxation of the memory limit, then labels; see docs/yan.md, "When memory is short".

Guarantee: the least time of all configurations that fit, except for rounding.
Complexity: one dynamic program on a few choices for each price; then O(labels · choices), with
exponentially many labels in the worst case, some dozens a state in practice.
Source: own, after Handler and Zang, "A dual algorithm for the constrained shortest path problem",
Networks 1980.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from planner.families.yan.checker import worker_bytes
from planner.families.yan.cuts import Array
from planner.families.yan.layer_program import Chosen, LayerProgram, LayerState, Triple, state_at
from planner.families.yan.layerwise import BEAM, Layerwise
from planner.families.yan.problem import Problem

PRICES = 40
"""Most prices of memory that are tried."""

MAX_TIES = 32
"""Partial paths to one state that are kept although they differ by rounding only."""


class Memory:
    """Bytes of each layer's largest segment, computed on first use; `room` is the limit (bytes)."""

    def __init__(self, problem: Problem, room: int) -> None:
        self.room = room
        self.row = cache(self._row)
        self.of = cache(lambda place, p, h: worker_bytes(problem, place, p, h))
        self.threads = problem.threads

    def _row(self, place: int, partitions: int) -> Array:
        return np.array([float(self.of(place, partitions, h + 1)) for h in range(self.threads)])

    def fits(self, states: Sequence[LayerState]) -> bool:
        """Return whether a worker has room for the largest segment of every layer."""
        needed = (
            self.of(place, state.partitions, state.threads) for place, state in enumerate(states)
        )
        return sum(needed) <= self.room


class Fitting(NamedTuple):
    """The best configurations of a triple that fit."""

    chosen: tuple[Chosen, ...]  # several if they differ by rounding only
    complete: bool  # whether no other can be better
    states: int  # states examined


def fitting(layerwise: Layerwise, memory: Memory, triple: Triple) -> Fitting | None:
    """Return the best configurations that fit, or None."""
    lowest = layerwise.lowest(triple)
    bytes_of = [
        np.array([memory.row(place, p) for p, _ in options.choices[: len(low)]])
        for place, (options, low) in enumerate(zip(layerwise.options, lowest, strict=True))
    ]
    if sum(int(size.min()) for size in bytes_of) > memory.room:
        return None
    error = layerwise.tables.error
    best, price = _priced(layerwise, memory, triple, lowest, bytes_of)
    priced = [low + price * size for low, size in zip(lowest, bytes_of, strict=True)]
    least = [costs.min() for costs in priced]
    # Times and bytes at their price are compared together, so rounding grows with both.
    cap = best.epoch + price * memory.room
    cap *= 1 + 4 * error
    keep = [costs - low + sum(least) <= cap for costs, low in zip(priced, least, strict=True)]
    states = int(sum(kept.sum() for kept in keep))
    rows = [np.flatnonzero(kept.any(axis=1)) for kept in keep]
    cut = [np.where(kept[row], 0.0, np.inf) for kept, row in zip(keep, rows, strict=True)]
    program = layerwise.reduced(triple, rows).plus(cut)
    sizes = [size[row] for size, row in zip(bytes_of, rows, strict=True)]
    fits, complete = _labels(program, sizes, memory.room, price, cap)
    return Fitting(tuple(fits or [best]), complete, states)


def smallest(layerwise: Layerwise, memory: Memory, triple: Triple) -> tuple[LayerState, ...]:
    """Return the states that need least memory."""
    states = []
    for place, options in enumerate(layerwise.options):
        count = options.count(triple.workers)
        size = np.array([memory.row(place, p) for p, _ in options.choices[:count]])
        row, column = divmod(int(size.argmin()), size.shape[1])
        states.append(state_at(options.choices, row, column))
    return tuple(states)


def _priced(
    layerwise: Layerwise,
    memory: Memory,
    triple: Triple,
    lowest: list[Array],
    bytes_of: list[Array],
) -> tuple[Chosen, float]:
    """Return a configuration that fits, and the price of a byte with the highest bound."""
    least = smallest(layerwise, memory, triple)
    best = Chosen(layerwise.time(triple, least), least)
    low, high = 0.0, None
    price, best_price, best_bound = 0.0, 0.0, -np.inf
    start = best.epoch / memory.room
    for _ in range(PRICES):
        priced = [cost + price * size for cost, size in zip(lowest, bytes_of, strict=True)]
        bound = float(sum(costs.min() for costs in priced)) - price * memory.room
        if bound > best_bound:
            best_price, best_bound = price, bound
        few = [np.argsort(costs.min(axis=1), kind="stable")[:BEAM] for costs in priced]
        charges = [price * size[rows] for size, rows in zip(bytes_of, few, strict=True)]
        states = layerwise.reduced(triple, few).plus(charges).best().states
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


class _Label(NamedTuple):
    """A partial path, with its time and bytes."""

    time: float
    size: float
    path: tuple[LayerState, ...]


def _labels(
    program: LayerProgram, sizes: list[Array], room: int, price: float, cap: float
) -> tuple[list[Chosen], bool]:
    """Return the best paths that fit, and whether no partial path was dropped for `MAX_TIES`.

    `cap` bounds the time of a path plus its bytes at their price.
    """
    # A path that fits costs at most `cap`, its bytes at their price included. Partial paths whose
    # best completion exceeds `cap`, or leaves no room for the smallest rest, are dropped.
    togo = program.togo([price * size for size in sizes])
    rest = [sum(float(size.min()) for size in sizes[place + 1 :]) for place in range(len(sizes))]
    slack = 1 + 2 * program.tables.error
    complete = True
    labels: dict[tuple[int, int], list[_Label]] = {}
    for place in range(len(sizes)):
        grown: dict[tuple[int, int], list[_Label]] = {}

        def grow(
            cost: Array,
            size: Array,
            path: tuple[LayerState, ...],
            place: int = place,
            into: dict[tuple[int, int], list[_Label]] = grown,
        ) -> None:
            good = (cost + price * size + togo[place] <= cap) & (size + rest[place] <= room)
            for b, h in np.argwhere(good).tolist():
                state = state_at(program.options[place], b, h)
                label = _Label(float(cost[b, h]), float(size[b, h]), (*path, state))
                into.setdefault((b, h), []).append(label)

        if place == 0:
            grow(program.own[0], sizes[0], ())
        else:
            earlier, options = program.options[place - 1], program.options[place]
            # Back-propagation runs with the earlier layer's threads, feed-forward with the later
            # one's.
            for (a, before), labels_here in labels.items():
                ahead, back = program.tables.pair(place, [earlier[a]], options)
                step = (back[0, :, before, None] + ahead[0]) / program.replicas
                step = step + program.own[place]
                for label in labels_here:
                    grow(label.time + step, label.size + sizes[place], label.path)
        labels = {}
        for key, labels_here in grown.items():
            labels[key], all_kept = _undominated(labels_here, slack)
            complete &= all_kept
    ends = [label for labels_here in labels.values() for label in labels_here]
    least = min((label.time for label in ends), default=0.0) * slack
    return [Chosen(label.time, label.path) for label in ends if label.time <= least], complete


def _undominated(labels: list[_Label], slack: float) -> tuple[list[_Label], bool]:
    """Return the labels not dominated in time and bytes, except for rounding.

    At most `MAX_TIES` labels that differ by rounding only are kept; also returns whether all were.
    """
    kept: list[_Label] = []
    cheapest, ties, complete = float("inf"), 0, True
    for label in sorted(labels, key=lambda label: (label.size, label.time)):
        if label.time * slack < cheapest:
            kept.append(label)
            cheapest, ties = label.time, 0
        elif label.time <= cheapest * slack:
            ties += 1
            if ties <= MAX_TIES:
                kept.append(label)
            else:
                complete = False
    return kept, complete
