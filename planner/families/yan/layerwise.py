"""The best layers of one triple (N_wr, N_mr, N_ps): bounds that cut the dynamic program.

Problem: for given workers, replicas and servers choose partitions, copies and threads of every
layer so that an epoch is shortest. Method: `planner.families.yan.layer_program`, on the choices
that two lower bounds over all mappings leave; see docs/yan.md, "Why the dynamic program can cut
states".

Guarantee: the least time of all choices, except for rounding.
Complexity: O(L·K·C²) with C remaining choices a layer, at most N ln N.
Source: Yan et al., KDD'15, slides "Optimizing multi-layer composition"; the separation by threads
and the cuts are ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.yan.configuration import Triple
from planner.families.yan.layer_program import LayerProgram, LayerState
from planner.families.yan.model import reading_factor, volume
from planner.families.yan.problem import Choice, choices
from planner.families.yan.tables import Array, Places, Tables
from planner.solving.deadline import NEVER, Deadline

KEPT = 64
"""Triples whose bounds are cached: a promising triple is solved soon after it is bounded."""

BEAM = 6
"""Choices a layer for the first configuration."""


# ---
# Lower bound on all configurations of a triple that contain a given state of a layer.
#
# Problem: the exchange of two layers is a large part of their time, and bounds of each layer by
# itself miss it. Method: the dynamic program, in which a layer sees of a neighbour only a class of
# choices; forward and backward values together bound every path through a state.
#
# Guarantee: a bound for every mapping, except for rounding. Complexity: O(L·K·C·log N). Source:
# own, after Raphael, "Coarse-to-fine dynamic programming", IEEE PAMI 2001.


class _Bounds(NamedTuple):
    """Bounds of one layer, by choice and threads; of an exchange also by the neighbour's class."""

    classes: Places  # of the choices
    own: Array
    ahead: Array  # feed-forward
    back: Array  # back-propagation


class Coarse:
    """Coarse bounds of one problem; TimeUpError at the deadline."""

    def __init__(
        self, tables: Tables, options: Sequence[Sequence[Choice]], deadline: Deadline
    ) -> None:
        most = max(p for some in options for p, _ in some)
        self.parts = [1, 2, 3, *(1 << power for power in range(2, most.bit_length()))]
        self.parts = [count for count in self.parts if count <= most]
        self.layers: list[_Bounds] = []
        last = len(options) - 1
        for place, some in enumerate(options):
            deadline.check()
            same = tables.alike[place]
            if same < place:
                self.layers.append(self.layers[same])
                continue
            partitions, copies = np.array(some).T
            bounds = [tables.lowest(place, p) for p, _ in some]
            forward, backward, own = (
                np.array(bound) / copies[:, None] for bound in zip(*bounds, strict=True)
            )
            # Take the stronger of two bounds on the exchange: by the neighbour's class, and for any
            # neighbour.
            ahead = back = np.zeros((1, 1, 1))
            if place:
                ahead = tables.exchange_bound(place, some, self.parts, forward=True)
                ahead = np.maximum(ahead.swapaxes(0, 1), forward[None])
            else:
                own = own + forward
            if place < last:
                back = tables.exchange_bound(place, some, self.parts, forward=False)
                back = np.maximum(back, backward[:, None])
            else:
                own = own + backward
            classes = np.searchsorted(self.parts, partitions, side="right") - 1
            self.layers.append(_Bounds(classes, own, ahead, back))

    def through(self, reading: Sequence[Array], replicas: int, deadline: Deadline) -> list[Array]:
        """Return bounds on all configurations through each state, by choice and threads.

        `reading` is the time to read each layer's weights, by choice and threads, for the first
        choices of each layer.
        """
        layers = [
            _Bounds(
                layer.classes[: len(read)],
                layer.own[: len(read)] / replicas + read,
                layer.ahead[:, : len(read)] / replicas,
                layer.back[: len(read)] / replicas,
            )
            for layer, read in zip(self.layers, reading, strict=True)
        ]
        # Forward: the minimum over paths that end in a state, knowing only the neighbour's class.
        values = [layers[0].own]
        for before, layer in pairwise(layers):
            deadline.check()
            left = self._least(before, (values[-1][:, None] + before.back).min(axis=2))
            values.append(layer.own + (layer.ahead + left[:, layer.classes, None]).min(axis=0))
        # Backward: the minimum over the rest of the path. Their sum bounds every path through a
        # state.
        rest = np.zeros_like(layers[-1].own)
        totals = [values[-1]]
        for place in range(len(layers) - 1, 0, -1):
            deadline.check()
            before, layer = layers[place - 1], layers[place]
            right = self._least(layer, (layer.ahead + (layer.own + rest)[None]).min(axis=2).T)
            rest = (before.back + right[:, before.classes].T[:, :, None]).min(axis=1)
            totals.append(values[place - 1] + rest)
        return totals[::-1]

    def _least(self, layer: _Bounds, times: Array) -> Array:
        """Return the minimum over each class of choices, by class and neighbour's class."""
        least = np.full((len(self.parts), times.shape[1]), np.inf)
        for label in np.unique(layer.classes):
            least[label] = times[layer.classes == label].min(axis=0)
        return least


@dataclass(frozen=True)
class Options:
    """The choices of a layer, fewest segments first; arrays have one row a choice."""

    choices: Sequence[Choice]
    segments: Array  # partitions · copies
    lowest: Array  # bound on all but reading, of one replica, by threads
    volumes: Array  # weights in all segments

    def count(self, workers: int) -> int:
        """Return how many choices fit on this number of workers: they come first."""
        return int(np.searchsorted(self.segments, workers, side="right"))


class Layerwise:
    """Bounds and best layers of the triples of one problem, with at most `workers` a replica.

    `allowed` filters choices. At the deadline the constructor, `coarse` and `program` raise
    TimeUpError.
    """

    def __init__(
        self,
        tables: Tables,
        workers: int,
        allowed: Callable[[Choice], bool] = lambda _: True,
        deadline: Deadline = NEVER,
    ) -> None:
        self.tables = tables
        self.workers = workers
        self.deadline = deadline
        known: dict[int, Options] = {}
        self.options: list[Options] = []
        for place, layer in enumerate(tables.problem.layers):
            alike = tables.alike[place]
            if alike not in known:
                allowed_choices = [
                    choice for choice in choices(tables.problem, layer, workers) if allowed(choice)
                ]
                lowest = []
                for p, r in allowed_choices:
                    deadline.check()
                    lowest.append(sum(tables.lowest(place, p)) / r)
                known[alike] = Options(
                    allowed_choices,
                    np.array([p * r for p, r in allowed_choices], dtype=float),
                    np.array(lowest),
                    np.array([float(volume(layer, *choice)) for choice in allowed_choices]),
                )
            self.options.append(known[alike])
        self._coarse: Coarse | None = None
        self._through: dict[Triple, tuple[list[Array], float]] = {}

    def _factor(self, triple: Triple) -> float:
        return float(reading_factor(self.tables.problem, *triple))

    def readings(self, triple: Triple) -> list[Array]:
        """Return the time to read each layer's weights, by choice and threads."""
        factor = self._factor(triple)
        return [
            self.tables.reading(options.volumes[: options.count(triple.workers)], factor)
            for options in self.options
        ]

    def choices(self, workers: int) -> list[Sequence[Choice]]:
        """Return the choices of each layer on this number of workers."""
        return [options.choices[: options.count(workers)] for options in self.options]

    def lowest(self, triple: Triple) -> list[Array]:
        """Return the bound of each layer under any mapping, by choice and threads."""
        return [
            options.lowest[: len(reading)] / triple.replicas + reading
            for options, reading in zip(self.options, self.readings(triple), strict=True)
        ]

    def bound(self, triple: Triple) -> float:
        """Return a bound on the triple under any mapping, except for rounding."""
        return float(sum(costs.min() for costs in self.lowest(triple)))

    def bounds(self, replicas: int, workers: int, servers: int) -> Array:
        """Return a bound for each number of workers from 1 to `workers`, any number of servers.

        `servers` is the largest number of servers that can be read in parallel.
        """
        total = np.zeros(workers)
        optimist = Triple(servers, replicas, servers)
        for options, cost in zip(
            self.options, self.lowest(optimist._replace(workers=workers)), strict=True
        ):
            least = np.full(workers, np.inf)
            np.minimum.at(least, options.segments[: len(cost)].astype(int) - 1, cost.min(axis=1))
            total += np.minimum.accumulate(least)
        return total

    def coarse(self, triple: Triple) -> tuple[list[Array], float]:
        """Return the bound through each state, by choice and threads, and the triple's bound."""
        side = min(triple.servers, triple.workers)  # more servers are not read in parallel
        key = triple._replace(servers=side)
        if key not in self._through:
            if self._coarse is None:
                options = [options.choices for options in self.options]
                self._coarse = Coarse(self.tables, options, self.deadline)
            while len(self._through) >= KEPT:
                del self._through[next(iter(self._through))]
            through = self._coarse.through(self.readings(triple), triple.replicas, self.deadline)
            self._through[key] = through, float(through[0].min())
        return self._through[key]

    def few(self, triple: Triple, costs: Sequence[Array]) -> LayerProgram:
        """Return the program on a few choices of each layer, those with the least costs."""
        rows = [np.argsort(cost.min(axis=1), kind="stable")[:BEAM] for cost in costs]
        return self.reduced(triple, rows)

    def kept(self, triple: Triple, keep: Sequence[NDArray[np.bool_]]) -> LayerProgram:
        """Return the program on some states, by choice and threads of each layer."""
        rows = [np.flatnonzero(states.any(axis=1)) for states in keep]
        cut = [np.where(states[row], 0.0, np.inf) for states, row in zip(keep, rows, strict=True)]
        return self.reduced(triple, rows).plus(cut)

    def program(self, triple: Triple) -> LayerProgram:
        """Return the program on the choices that may be optimal.

        The program raises TimeUpError too.
        """
        through, _ = self.coarse(triple)
        first = self.few(triple, through)
        limit = first.best().epoch * (1 + 2 * self.tables.error)
        keep = [costs <= limit for costs in through]
        if not all(states.any() for states in keep):  # optimistic costs, as below
            return first
        program = self.kept(triple, keep)
        if program.within(first):
            return first
        program = replace(program, deadline=self.deadline)
        # Optimistic costs can be below the bounds over mappings. Then states of the first program
        # may be cut, and no mapping is faster than it.
        if self.tables.optimistic and not program.values[0][-1].min() <= limit:
            return first
        return program

    def whole_program(self, triple: Triple) -> LayerProgram:
        """Return the program on all choices."""
        return self.reduced(
            triple, [np.arange(options.count(triple.workers)) for options in self.options]
        )

    def only(self, triple: Triple, states: Sequence[LayerState]) -> LayerProgram:
        """Return the program on one state of each layer."""
        rows, cut = [], []
        for options, state in zip(self.options, states, strict=True):
            rows.append(np.array([options.choices.index(state.choice)]))
            cut.append(np.full((1, self.tables.problem.threads), np.inf))
            cut[-1][0, state.threads - 1] = 0.0
        return self.reduced(triple, rows).plus(cut)

    def time(self, triple: Triple, states: Sequence[LayerState]) -> float:
        """Return the time of an epoch with these layers, except for rounding."""
        return float(self.only(triple, states).values[0][-1].min())

    def reduced(self, triple: Triple, rows: Sequence[Places]) -> LayerProgram:
        """Return the program on some rows of each layer's choices."""
        factor = self._factor(triple)
        options, own = [], []
        for place, (among, kept) in enumerate(zip(self.options, rows, strict=True)):
            choices_kept = [among.choices[row] for row in kept.tolist()]
            ends = np.array([self.tables.ends(place, choice) for choice in choices_kept])
            options.append(choices_kept)
            reading = self.tables.reading(among.volumes[kept], factor)
            own.append(ends / triple.replicas + reading)
        return LayerProgram(self.tables, options, own, triple.replicas)
