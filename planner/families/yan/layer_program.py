"""Dynamic programs over layers: the least time of an epoch among given choices of each layer.

Problem: given the choices of each layer, their own costs, and the costs of choices of consecutive
layers, find the choices with the least sum, also under a limit on memory.

Method: values in floating point (`LayerProgram`), then labels: partial paths that may be best
within rounding errors, compared in fractions (`best_path`). See docs/yan.md, "Why the dynamic
program can cut states" and "When memory is short".

Guarantee: `LayerProgram.best` is the least sum except for rounding, `best_path` the exact one.
Complexity: O(L·K·C²) for C choices a layer, then O(labels · C); mostly one label a layer, with
little memory some dozens a state. Source: Yan et al., KDD'15; labels after Handler and Zang, "A
dual algorithm for the constrained shortest path problem", Networks 1980.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from planner.families.yan.configuration import LayerChoice, LayerMapping, Triple, canonical_mapping
from planner.families.yan.model import Phases, phases, reading, reading_factor, volume
from planner.families.yan.problem import Choice, Problem
from planner.families.yan.segments import segments_of
from planner.families.yan.tables import MAX_ELEMENTS, Array, Places, Tables
from planner.solving.deadline import NEVER, Deadline

MAX_TIED = 20_000
"""Most labels of paths that differ by rounding only."""


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


class Chosen(NamedTuple):
    """The layers of a triple, and the time of an epoch (ns, except for rounding)."""

    epoch: float
    states: tuple[LayerState, ...]
    mappings: tuple[LayerMapping, ...] = ()  # empty for the canonical ones


@dataclass(frozen=True)
class LayerProgram:
    """The dynamic program on the remaining choices; TimeUpError at the deadline.

    With F and B the times of feed-forward and back-propagation between two layers, the least time
    up to layer l is V(l, b, H) = own(l, b, H) + min_a [F(l, a, b, H) + left(l, a, b)], where
    left(l, a, b) = min_H' [V(l-1, a, H') + B(l-1, a, b, H')].
    """

    tables: Tables
    options: Sequence[Sequence[Choice]]
    own: Sequence[Array]  # each layer's own costs, by choice and threads; infinite where cut
    replicas: int
    deadline: Deadline = NEVER

    def plus(self, extra: Sequence[Array]) -> "LayerProgram":
        """Return the program with an extra cost for each state."""
        own = [cost + more for cost, more in zip(self.own, extra, strict=True)]
        return replace(self, own=own)

    def within(self, other: "LayerProgram") -> bool:
        """Return whether the other program has all choices of this one."""
        pairs = zip(self.options, other.options, strict=True)
        return all(set(mine) <= set(theirs) for mine, theirs in pairs)

    def blocks(self, place: int, rows: Places) -> Iterator[tuple[slice, Array, Array]]:
        """Yield blocks of feed-forward of layer `place` and back-propagation of the layer before.

        By choice of the layer before (`rows`), choice of the layer, and threads. A block has few
        choices of the layer, so that memory does not grow with the square of their number.
        """
        before = [self.options[place - 1][row] for row in rows.tolist()]
        if not before:
            return
        options = self.options[place]
        step = max(1, MAX_ELEMENTS // (len(before) * self.tables.problem.threads))
        for start in range(0, len(options), step):
            self.deadline.check()
            block = slice(start, start + step)
            ahead, back = self.tables.pair(place, before, options[block])
            yield block, ahead / self.replicas, back / self.replicas

    @cached_property
    def values(self) -> tuple[list[Array], list[Array]]:
        """Return V of every layer, and `left` of every layer but the first, by pairs of choices."""
        values, between = [self.own[0]], []
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
            values.append(self.own[place] + arrived)
            between.append(left)
        return values, between

    def best(self) -> Chosen:
        """Return the best of the remaining choices."""
        values, between = self.values
        last = len(values) - 1
        b, h = divmod(int(values[-1].argmin()), values[-1].shape[1])
        states = [state_at(self.options[last], b, h)]
        # Recompute the sums to find the choice and threads that attain each least value; ties take
        # the first.
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


class Exact:
    """Costs as fractions from the model itself, cached; machines as fast as the constants say."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.phases = cache(self._phases)

    def _phases(
        self, place: int, state: LayerState, before: Choice | None, after: Choice | None
    ) -> Phases:
        """Return the times of a layer for a sample; without a neighbour it receives nothing."""
        choices = (before, state.choice, after)
        given = [choice for choice in choices if choice is not None]
        mappings = iter(canonical_mapping(given, sum(p * r for p, r in given)))
        first, mine, last = (
            None if choice is None else LayerChoice(choice[0], 1, choice[1], next(mappings))
            for choice in choices
        )
        assert mine is not None
        segments = segments_of(self.problem, place, mine, first, last)
        return phases(self.problem, place, state.threads, segments)

    def _share(self, state: LayerState) -> Fraction:
        return Fraction(self.problem.samples, state.threads * state.copies)

    def forward(self, place: int, before: Choice, state: LayerState) -> Fraction:
        """Return the feed-forward of a layer behind a choice of the layer before."""
        return self._share(state) * sum(self.phases(place, state, before, None).forward)

    def backward(self, place: int, state: LayerState, after: Choice) -> Fraction:
        """Return the back-propagation of a layer before a choice of the next layer."""
        return self._share(state) * sum(self.phases(place, state, None, after).backward)

    def own(self, place: int, state: LayerState) -> Fraction:
        """Return the costs that do not depend on other layers' choices, without weight reads."""
        times = self.phases(place, state, None, None)
        total = times.update
        if place == 0:
            total += sum(times.forward)
        if place + 1 == len(self.problem.layers):
            total += sum(times.backward)
        return self._share(state) * total

    def epoch(self, triple: Triple, states: Sequence[LayerState]) -> Fraction:
        """Return the time of an epoch with these layers, or the part of the first layers."""
        total, factor = Fraction(0), reading_factor(self.problem, *triple)
        for place, state in enumerate(states):
            weights = volume(self.problem.layers[place], *state.choice)
            total += reading(self.problem, weights, state.threads, factor)
            times = self.own(place, state)
            if place:
                before = states[place - 1]
                times += self.forward(place, before.choice, state)
                times += self.backward(place - 1, before, state.choice)
            total += times / triple.replicas
        return total


class Limit(NamedTuple):
    """A limit on the bytes of a path."""

    sizes: Sequence[Array]  # by layer, choice and threads
    room: float
    price: float = 0.0  # of a byte, in a bound on the time of a path


class _Label(NamedTuple):
    """A partial path, with its time and bytes."""

    time: float
    size: float
    path: tuple[LayerState, ...]


def best_path(
    program: LayerProgram,
    exact: Exact,
    triple: Triple,
    limit: Limit | None = None,
    cap: float | None = None,
) -> tuple[Fraction, tuple[LayerState, ...]] | None:
    """Return the exact least time of a triple, and its states.

    `cap` bounds the time of the path, with its bytes at their price; by default the least time of
    the program. None if no path fits, or, without a cap, if too many paths are within rounding.
    """
    sizes, room, price = limit or Limit([np.zeros_like(cost) for cost in program.own], 0.0)
    slack, most = 1 + 2 * program.tables.error, float("inf")
    if cap is None:
        cap, most = float(program.values[0][-1].min()) * slack, MAX_TIED

    @cache
    def key(label: _Label) -> tuple[Fraction, tuple[LayerState, ...]]:
        return exact.epoch(triple, label.path), label.path

    # Partial paths whose best completion exceeds `cap`, or leaves no room for the smallest rest,
    # are dropped.
    togo = program.togo([price * size for size in sizes])
    smallest = [float(size.min()) for size in sizes]
    labels, count = [_Label(0.0, 0.0, ())], 0
    for place, options in enumerate(program.options):
        grown: dict[LayerState, list[_Label]] = {}
        rest = sum(smallest[place + 1 :])
        for before, alike in groupby(labels, key=lambda label: [s.choice for s in label.path[-1:]]):
            if before:
                ahead, back = program.tables.pair(place, before, options)
            for label in alike:
                time, size = label.time + program.own[place], label.size + sizes[place]
                # Back-propagation runs with the earlier layer's threads, feed-forward with the
                # later one's.
                if label.path:
                    returned = back[0, :, label.path[-1].threads - 1, None]
                    time = time + (returned + ahead[0]) / program.replicas
                good = (time + price * size + togo[place] <= cap) & (size + rest <= room)
                places = np.argwhere(good).tolist()
                count += len(places)
                if count > most:
                    return None
                for b, h in places:
                    state = state_at(options, b, h)
                    longer = _Label(float(time[b, h]), float(size[b, h]), (*label.path, state))
                    grown.setdefault(state, []).append(longer)
        labels = []
        for _, ends in sorted(grown.items()):
            labels += _undominated(ends, key, slack)
    least = min((label.time for label in labels), default=0.0) * slack
    return min(map(key, (label for label in labels if label.time <= least)), default=None)


def _undominated(labels: list[_Label], key: Callable[[_Label], Any], slack: float) -> list[_Label]:
    """Return the labels not dominated in bytes and time; `key` decides within rounding."""
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda label: (label.size, label.time)):
        if kept and label.time * slack >= kept[-1].time:
            if label.time > kept[-1].time * slack or key(label) > key(kept[-1]):
                continue
            if label.size == kept[-1].size:
                kept.pop()
        kept.append(label)
    return kept
