"""The best layers of one triple (N_wr, N_mr, N_ps): a dynamic program over layers, with cuts.

Problem: for given workers, replicas and servers choose partitions, copies and threads of every
layer so that an epoch is shortest.

Method: `planner.families.yan.layer_program`. Choices that cannot be part of a better configuration
are cut by two lower bounds over all mappings; see docs/yan.md, "Why the dynamic program can cut
states".

Guarantee: the least time of all choices, except for rounding.
Complexity: O(L·K·C²) with C remaining choices a layer, at most N ln N.
Source: Yan et al., KDD'15, slides "Optimizing multi-layer composition"; the separation by threads
and the cuts are ours.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.families.yan.coarse_bound import Coarse
from planner.families.yan.cuts import Array
from planner.families.yan.layer_program import LayerProgram, LayerState, Rows, Triple
from planner.families.yan.model import reading_factor, volume
from planner.families.yan.tables import Choice, Tables, choices
from planner.solving.deadline import NEVER, Deadline

KEPT = 64
"""Triples whose bounds are cached: a promising triple is solved soon after it is bounded."""

BEAM = 6
"""Choices a layer for the first configuration."""


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

    def program(self, triple: Triple) -> tuple[LayerProgram, int]:
        """Return the program on the choices that may be optimal, and its number of states.

        The program raises TimeUpError too.
        """
        through, _ = self.coarse(triple)
        few = [np.argsort(costs.min(axis=1), kind="stable")[:BEAM] for costs in through]
        first = self.reduced(triple, few)
        limit = first.best().epoch * (1 + 2 * self.tables.error)
        keep = [costs <= limit for costs in through]
        states = int(sum(kept.sum() for kept in keep))
        left = [np.flatnonzero(kept.any(axis=1)) for kept in keep]
        if all(set(rows) <= set(tried) for rows, tried in zip(left, few, strict=True)):
            return first, states
        cut = [np.where(kept[rows], 0.0, np.inf) for kept, rows in zip(keep, left, strict=True)]
        program = self.reduced(triple, left).plus(cut)
        lowest = [float(costs.min()) for costs in self.lowest(triple)]
        after = [sum(lowest[place + 1 :]) for place in range(len(lowest))]
        program = replace(program, limit=limit, rest=after, deadline=self.deadline)
        # Optimistic costs can be below the bounds over mappings. Then every state may be cut, and
        # no mapping is faster than the limit.
        if self.tables.optimistic and not np.isfinite(program.values[0][-1]).any():
            return first, states
        return program, states

    def quick(self, triple: Triple) -> LayerProgram:
        """Return the program on a few choices that are best each by itself."""
        lowest = self.lowest(triple)
        few = [np.argsort(costs.min(axis=1), kind="stable")[:BEAM] for costs in lowest]
        return self.reduced(triple, few)

    def whole_program(self, triple: Triple) -> LayerProgram:
        """Return the program on all choices."""
        return self.reduced(
            triple, [np.arange(options.count(triple.workers)) for options in self.options]
        )

    def states(self, workers: int) -> int:
        """Return the number of states of all layers on this number of workers."""
        return int(self.all_states[workers])

    @cached_property
    def all_states(self) -> Rows:
        """The number of states of all layers, by workers from 0 on."""
        most = np.arange(self.workers + 1)
        states = np.zeros_like(most)
        for alike, layers in Counter(map(id, self.options)).items():
            options = next(candidate for candidate in self.options if id(candidate) == alike)
            states += layers * np.searchsorted(options.segments, most, side="right")
        return np.asarray(self.tables.problem.threads * states)

    def time(self, triple: Triple, states: Sequence[LayerState]) -> float:
        """Return the time of an epoch with these layers, except for rounding."""
        rows = [
            np.array([options.choices.index(state.choice)])
            for options, state in zip(self.options, states, strict=True)
        ]
        program = self.reduced(triple, rows)
        time = 0.0
        for place, state in enumerate(states):
            time += float(program.own[place][0, state.threads - 1])
            if place:
                _, ahead, back = next(program.blocks(place, np.zeros(1, np.int64)))
                time += float(ahead[0, 0, state.threads - 1])
                time += float(back[0, 0, states[place - 1].threads - 1])
        return time

    def reduced(self, triple: Triple, rows: Sequence[Rows]) -> LayerProgram:
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
