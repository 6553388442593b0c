"""Costs of layers under the canonical mapping, as floating-point tables for the search.

Problem: for each two consecutive layers, each pair of their choices and each number of threads,
give the later layer's feed-forward and the earlier one's back-propagation, for one replica and an
epoch (divide by N_mr). Method: segments of one class are matched by place
(`planner.families.yan.configuration`), so the slowest segment's fetch has a closed form, computed
for all threads and equal partitions at once.

Guarantee: the relative error of a layer's cost is far below `ROUNDING`; decisions within it are
left to `planner.families.yan.layer_program`. Bounds hold for every mapping. Proofs: docs/yan.md,
"Why the dynamic program can cut states". Complexity: O(P·K) a pair of choices, in arrays. Source:
own; costs of Yan et al., KDD'15.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.families.yan.layers import NeuronLayer
from planner.families.yan.problem import Choice, Problem

Array = NDArray[np.float64]
Places = NDArray[np.int64]

MAX_ELEMENTS = 2**21
"""Elements of the largest temporary array."""

ROUNDING = 2.0**-44
"""Upper bound on the relative error of a layer's cost, and of adding one more layer."""


# ---
# Partitions of layers as arrays, for many partitions and choices at once: the cuts of
# `planner.families.yan.layers`; consecutive partitions with equal work and needs are one run.


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


class Tables:
    """Costs of one problem, computed on first use.

    `optimistic` puts each segment on the worker that holds most of its inputs, even if another
    segment is there too: a bound on every mapping.
    """

    def __init__(self, problem: Problem, *, optimistic: bool = False) -> None:
        self.problem = problem
        self.optimistic = optimistic
        constants, threads = problem.constants, problem.threads
        # By H = 1, 2, … threads: C_interf(H), C_ncost(H), and C_bits·H/C_nbw, as the threads of a
        # layer share a NIC. Each is exact up to here, and rounded once.
        count = np.arange(1, threads + 1)
        self.slower = np.array([float(factor) for factor in constants.interference[:threads]])
        self.latency = np.array([float(latency) for latency in constants.latency_ns[:threads]])
        nic = constants.nic_bits_per_s
        self.receive = count * float(constants.bits_per_activation * 10**9 / nic)
        self.read_weight = count * float(constants.bits_per_weight * 10**9 / nic)
        self.share = problem.samples / count
        self.reads = problem.samples / problem.read_every
        self._work: dict[tuple[int, int], tuple[Array, Array, float]] = {}
        self._runs: dict[tuple[int, int, bool], Runs] = {}
        self._connected: dict[int, FieldArrays] = {}
        self._lowest: dict[tuple[int, int], tuple[Array, Array, Array]] = {}
        self.alike = self._first_alike()
        """For each layer the first one with the same costs, including those with its neighbours."""

    def _first_alike(self) -> list[int]:
        layers = [replace(layer, name="") for layer in self.problem.layers]
        first: dict[tuple[NeuronLayer | None, ...], int] = {}
        around = (None, *layers, None)
        return [first.setdefault(around[place : place + 3], place) for place in range(len(layers))]

    def work(self, place: int, partitions: int) -> tuple[Array, Array, float]:
        """Return each partition's forward and backward computation, and the slowest update.

        For one sample on one thread, without interference.
        """
        key = (self.alike[place], partitions)
        if key not in self._work:
            layer = self.problem.layers[place]
            held = np.array(layer.held(partitions))
            neurons = np.diff(held) * (layer.neurons // layer.rows)
            # connections·held // rows, as quotient and rest: no product exceeds 63 bits.
            each, rest = divmod(layer.connections, layer.rows)
            into = np.diff(each * held + rest * held // layer.rows)
            out = np.zeros_like(into)
            if place + 1 < len(self.problem.layers):
                out = np.diff(self._into(place, np.array(layer.passed(partitions))))
            # C_muladd·W + C_act·n forward, C_muladd·W' + C_err·n backward, C_muladd·W to update.
            rates = self.problem.rates[place]
            self._work[key] = (
                float(rates.forward) * into + float(rates.activation) * neurons,
                float(rates.backward) * out + float(rates.error) * neurons,
                float(rates.update) * float(into.max()),
            )
        return self._work[key]

    def _into(self, place: int, units: Places) -> Places:
        """Return the connections of the next layer into a layer's units before each place."""
        layer, following = self.problem.layers[place], self.problem.layers[place + 1]
        known = self.problem.fields[place]
        # `Fields.into`, as quotient and rest; in Python's integers where a product may exceed 63
        # bits.
        seen = self._rows(place).seen[units] if known.seen else units
        whole = known.seen[-1] if known.seen else layer.units
        each, rest = divmod(following.connections, whole)
        if rest.bit_length() + whole.bit_length() < 63:
            return np.asarray(each * seen + rest * seen // whole)
        return np.array([known.into(layer, following, unit) for unit in units.tolist()])

    def _rows(self, place: int) -> FieldArrays:
        """Return the connections of a layer and the next one, as arrays."""
        key = self.alike[place + 1]
        if key not in self._connected:
            self._connected[key] = FieldArrays(*map(np.asarray, self.problem.fields[place]))
        return self._connected[key]

    def reading(self, volumes: Array, factor: float) -> Array:
        """Return the time to read weights, by volume and threads.

        `factor` is 1 / min(N_ps, N_wr), N_mr, or their mean, by the read model.
        """
        # samples / read_every times C_ncost + V·C_bits·H·factor / C_nbw
        startups = np.outer(volumes > 0, self.latency)
        return np.asarray(self.reads * (startups + factor * np.outer(volumes, self.read_weight)))

    def ends(self, place: int, choice: Choice) -> Array:
        """Return the costs that do not depend on other layers' choices, by threads."""
        # The update; the first layer's feed-forward and the last one's back-propagation, which
        # receive nothing: A(1) = E(L) = 0.
        forward, backward, update = self.work(place, choice[0])
        total = self.slower * update
        if place == 0:
            total = total + self.slower * forward.max()
        if place + 1 == len(self.problem.layers):
            total = total + self.slower * backward.max()
        return np.asarray(total * self.share / choice[1])

    def lowest(self, place: int, partitions: int) -> tuple[Array, Array, Array]:
        """Return bounds on feed-forward, back-propagation and update of a layer with one copy.

        Under any mapping and any choice of its neighbours, by threads.
        """
        key = (self.alike[place], partitions)
        if key not in self._lowest:
            forward, backward, update = self.work(place, partitions)
            inputs, errors = self.needed(place)
            self._lowest[key] = (
                self.share * self._least(forward, inputs),
                self.share * self._least(backward, errors),
                self.share * self.slower * update,
            )
        return self._lowest[key]

    def needed(self, place: int) -> tuple[int, int]:
        """Return the activations and error terms if every partition needs all of them, else 0."""
        layers = self.problem.layers
        inputs = errors = 0
        if place and layers[place].needs_all:
            inputs = layers[place - 1].outputs
        if place + 1 < len(layers) and layers[place + 1].needs_all:
            errors = layers[place + 1].neurons
        return inputs, errors

    def _least(self, work: Array, units: int) -> Array:
        """Return a bound on the slowest segment, which needs all `units` of the other layer."""
        slowest, partitions = self.slower * work.max(), len(work)
        if units and partitions > 1:
            # The slowest is no faster than the average. The P partitions together hold the other
            # layer at most once, so they receive it P - 1 times, and all but one of them pay a
            # start-up.
            fetch = (partitions - 1) * (self.latency + units * self.receive)
            slowest = np.maximum(slowest, (self.slower * work.sum() + fetch) / partitions)
        return np.asarray(slowest)

    def exchange_bound(
        self, place: int, options: Sequence[Choice], parts: Sequence[int], *, forward: bool
    ) -> Array:
        """Return a bound on feed-forward or back-propagation, by own choice, `parts` and threads.

        The layer it is received from, before or behind, has at least `parts` partitions.
        """
        runs = self._runs_of(place, options, forward=forward)
        others, sender = [(count, 1) for count in parts], place - 1 if forward else place + 1
        return self._received(runs, others, sender, held=not forward, bound=True)

    def pair(
        self, place: int, before: Sequence[Choice], options: Sequence[Choice]
    ) -> tuple[Array, Array]:
        """Return feed-forward of layer `place` and back-propagation of the layer before it.

        Both by choice of the earlier layer (`before`), choice of the later (`options`), and
        threads.
        """
        runs = self._runs_of(place, options, forward=True)
        forward = self._received(runs, before, place - 1, held=False)
        runs = self._runs_of(place - 1, before, forward=False)
        backward = self._received(runs, options, place, held=True)
        return forward.swapaxes(0, 1), backward

    def _runs_of(
        self, place: int, options: Sequence[Choice], *, forward: bool
    ) -> "tuple[Runs, Places, Places]":
        """Return the runs of each choice, padded to equal numbers, its partitions and copies."""
        each = []
        for partitions, _ in options:
            key = (self.alike[place], partitions, forward)
            if key not in self._runs:
                ahead, back, _ = self.work(place, partitions)
                if forward:
                    self._runs[key] = runs_of(ahead, *self.inputs(place, partitions))
                else:
                    self._runs[key] = runs_of(back, *self.errors(place, partitions))
            each.append(self._runs[key])
        most = max(len(runs.work) for runs in each)
        # Padding repeats the first run, which changes no maximum over runs.
        filled = [
            runs.rows([*range(len(runs.work)), *[0] * (most - len(runs.work))]) for runs in each
        ]
        columns = Runs(*map(np.array, zip(*filled, strict=True)))
        segments = np.array(options)
        return columns, segments[:, 0], segments[:, 1]

    def _received(
        self,
        mine: "tuple[Runs, Places, Places]",
        neighbour: Sequence[Choice],
        place: int,
        *,
        held: bool,
        bound: bool = False,
    ) -> Array:
        """Return the slowest segment's time, by own choice, other layer's choice, and threads.

        `place` is the other layer, of which activations (units passed on) or error terms (rows
        `held`) are received. For a `bound` the other layer may have any copies, and more parts.
        """
        layer = self.problem.layers[place]
        cut = Cut(layer.units, *((layer.pool, layer.rows) if held else (1, layer.units)))
        width = layer.neurons // layer.rows if held else layer.width
        runs, partitions, copies = mine
        q, others = np.array(neighbour).T
        count, threads = len(neighbour), len(self.share)
        result = np.empty((len(copies), count, threads))
        step = max(1, MAX_ELEMENTS // (runs.work.shape[1] * threads * count))
        for start in range(0, len(copies), step):
            block = slice(start, start + step)
            part = runs.rows(block)
            p, r = partitions[block], copies[block]
            # Least local data of a segment of each run; axes are choice, other choice, run.
            if bound:  # a worker holds at most one of the largest parts
                own = cut.largest(q)[:, None] + np.zeros((len(p), 1, 1))
                own = np.minimum(own, (part.high - part.low)[:, None])
            else:
                own = self._own(part, p, r, q, others, cut)
            # C_interf·work + [C_ncost + A·C_bits·H/C_nbw if A > 0], of the slowest segment.
            time = part.work[..., None] * self.slower
            wanted = (part.high - part.low) * width
            remote = wanted[:, None, :] - own * width
            slowest = self.with_fetch(time[:, None], remote).max(axis=2)
            if self.optimistic and not bound:  # with more segments than hosts, one has no host
                alone = self.with_fetch(time, wanted.astype(float)).min(axis=1)[:, None, :]
                more = (p * r)[:, None, None] > (q * others)[:, None]
                slowest = np.where(more, np.maximum(slowest, alone), slowest)
            result[block] = slowest * self.share / r[:, None, None]
        return result

    def with_fetch(self, time: Array, remote: Array) -> Array:
        """Return `time` plus the time to receive `remote` units; 0 units pay no start-up."""
        fetch = self.latency + remote[..., None] * self.receive
        return np.asarray(time + np.where(remote[..., None] > 0, fetch, 0.0))

    def _own(
        self, runs: "Runs", p: Places, copies: Places, q: Places, others: Places, cut: Cut
    ) -> Array:
        """Return the least amount that segments of each run find on their own workers.

        By choice, the other layer's choice, and run. The hosts of a run's segments are consecutive,
        and parts of a layer do not grow, except for the last. So the minimum is at the first host,
        at the last one, or at the last one that holds another part.
        """
        # Copies r of R and r' of R' share samples where r ≡ r' (mod g), g = gcd(R, R'): a share g /
        # R' of the samples. Each of these g classes is a case of its own.
        classes = np.gcd.outer(copies, others)[..., None]
        share = classes / others[:, None]
        p, q, others = p[:, None, None], q[:, None], others[:, None]
        low, high = runs.low[:, None], runs.high[:, None]
        if self.optimistic:  # at most the largest part, or all that is needed
            return np.asarray(np.minimum(high - low, cut.largest(q)) * share)
        # In a class: segments a partition, hosts a part of the other layer, and the totals of both.
        each, parts = copies[:, None, None] // classes, others // classes
        count, hosts = p * each, q * parts
        run_first, run_stop = runs.first[:, None], runs.stop[:, None]
        # At most as many segments as hosts: segment j is on host j·hosts // count.
        first, last = run_first * each, run_stop * each - 1
        end = last * hosts // count
        reached = -(-(end // parts) * parts * count // hosts)  # first segment on the last part
        earlier = np.maximum(first, reached - 1) * hosts // count
        # More segments than hosts: host h has segment h·count // hosts, and every host has a
        # segment.
        start, stop = -(-run_first * hosts // p), -(-run_stop * hosts // p)
        before = np.maximum(start, (stop - 1) // parts * parts - 1)
        many = count > hosts
        # Amount of the needed range on each of the three hosts; 0 if a segment of the run has no
        # host. Clipping only changes entries of the other case.
        least = high - low
        for crowded, roomy in ((start, first * hosts // count), (stop - 1, end), (before, earlier)):
            part = np.clip(np.where(many, crowded, roomy) // parts, 0, q - 1)
            opening, closing = cut.bounds(part, q)
            least = np.minimum(least, np.minimum(high, closing) - np.maximum(low, opening))
        missing = many & (stop - start < (run_stop - run_first) * each)
        return np.asarray(np.where(missing, 0, np.maximum(least, 0)) * share)

    def inputs(self, place: int, partitions: int) -> tuple[Places, Places]:
        """Return the units low … high-1 of the layer before that each partition needs."""
        layer = self.problem.layers[place]
        if layer.needs_all:
            units = self.problem.layers[place - 1].units
            return np.zeros(partitions, np.int64), np.full(partitions, units)
        rows, known = np.array(layer.held(partitions)), self._rows(place - 1)
        return known.first[rows[:-1]], known.last[rows[1:] - 1]

    def errors(self, place: int, partitions: int) -> tuple[Places, Places]:
        """Return the rows low … high-1 of the next layer whose error terms each partition needs."""
        layer, after = self.problem.layers[place], self.problem.layers[place + 1]
        if after.needs_all:
            return np.zeros(partitions, np.int64), np.full(partitions, after.rows)
        known, units = self._rows(place), np.array(layer.passed(partitions))
        low = np.searchsorted(known.last, units[:-1], side="right")  # both are sorted
        high = np.maximum(low, np.searchsorted(known.first, units[1:], side="left"))
        return low, high

    @cached_property
    def error(self) -> float:
        """Upper bound on the relative error of a configuration's cost."""
        return (len(self.problem.layers) + 2) * ROUNDING
