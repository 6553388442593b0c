"""Work of a layer's segments, and what they receive from other workers.

A segment is one partition of one copy. It receives what it needs of the neighbouring layers and its
own worker does not hold, on average over its samples.

Complexity: O(P·R) a layer. Source: Yan et al., KDD'15 (``W``, ``W'``, ``A`` and ``E``).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from math import gcd
from typing import NamedTuple

from planner.families.yan.configuration import LayerChoice
from planner.families.yan.problem import Problem


class Segment(NamedTuple):
    """Work and traffic of one segment for one of its samples.

    `neurons`, `connections` and `outgoing` are ``n``, ``W`` and ``W'``; `activations` and `errors`
    are the mean numbers received, ``A`` and ``E``.
    """

    worker: int
    neurons: int
    connections: int
    outgoing: int
    activations: Fraction
    errors: Fraction


def inputs(problem: Problem, place: int, start: int, stop: int) -> tuple[int, int]:
    """Return the units [low, high) of the layer before that rows [start, stop) of a layer need."""
    layer, before = problem.layers[place], problem.layers[place - 1]
    if layer.needs_all:
        return 0, before.units
    known = problem.fields[place - 1]
    return known.first[start], known.last[stop - 1]


def error_terms(problem: Problem, place: int, start: int, stop: int) -> tuple[int, int]:
    """Return the rows [low, high) of the next layer whose error terms units [start, stop) need."""
    after = problem.layers[place + 1]
    if after.needs_all:
        return 0, after.rows
    known = problem.fields[place]
    return bisect_right(known.last, start), bisect_left(known.first, stop)


class _Held(NamedTuple):
    partition: int
    copy: int


def _holding(choice: LayerChoice) -> dict[int, _Held]:
    """Return the partition and copy that each worker holds."""
    return {
        worker: _Held(p, r) for p, row in enumerate(choice.mapping) for r, worker in enumerate(row)
    }


def segments_of(
    problem: Problem,
    place: int,
    choice: LayerChoice,
    before: LayerChoice | None,
    after: LayerChoice | None,
) -> list[Segment]:
    """Return the work and traffic of each segment of a layer.

    Nothing is received from a neighbouring layer whose choice (`before`, `after`) is None.
    """
    layer = problem.layers[place]
    held, units = layer.held(choice.partitions), layer.passed(choice.partitions)
    width = layer.neurons // layer.rows
    holding_before = {} if before is None else _holding(before)
    holding_after = {} if after is None else _holding(after)
    starts_before = starts_after = None
    if before is not None:
        starts_before = problem.layers[place - 1].passed(before.partitions)
    if after is not None:
        starts_after = problem.layers[place + 1].held(after.partitions)
    activations_of: dict[tuple[int, int], Fraction] = {}
    errors_of: dict[tuple[int, int], Fraction] = {}
    segments = []
    for p in range(choice.partitions):
        outgoing, needed, wanted = 0, None, None
        if starts_before is not None:
            previous = problem.layers[place - 1]
            low, high = inputs(problem, place, held[p], held[p + 1])
            needed = _Needed(low, high, starts_before, previous.width, activations_of)
        if place + 1 < len(problem.layers):
            following = problem.layers[place + 1]
            into = problem.fields[place].into
            outgoing = into(layer, following, units[p + 1]) - into(layer, following, units[p])
            if starts_after is not None:
                low, high = error_terms(problem, place, units[p], units[p + 1])
                wanted = _Needed(
                    low, high, starts_after, following.neurons // following.rows, errors_of
                )
        connections = layer.share(layer.connections, held[p + 1])
        connections -= layer.share(layer.connections, held[p])
        for r, worker in enumerate(choice.mapping[p]):
            activations = errors = Fraction(0)
            if needed is not None and before is not None:
                there = holding_before.get(worker)
                activations = needed.remote(r, choice.copies, there, before.copies)
            if wanted is not None and after is not None:
                there = holding_after.get(worker)
                errors = wanted.remote(r, choice.copies, there, after.copies)
            neurons = width * (held[p + 1] - held[p])
            segments.append(Segment(worker, neurons, connections, outgoing, activations, errors))
    return segments


class _Needed(NamedTuple):
    """Units [low, high) that a segment needs of another layer, which is cut at `starts`.

    `known` caches results: few differ, and making fractions is slow.
    """

    low: int
    high: int
    starts: Sequence[int]
    width: int
    known: dict[tuple[int, int], Fraction]

    def remote(self, copy: int, copies: int, there: _Held | None, others: int) -> Fraction:
        """Return the amount held by other workers, on average over the samples of `copy`.

        A share g / R' of these samples is of each copy r' ≡ copy (mod g) of the other layer.
        """
        shared, classes = 0, gcd(copies, others)
        if there is not None and (there.copy - copy) % classes == 0:
            start, stop = self.starts[there.partition], self.starts[there.partition + 1]
            shared = max(0, min(self.high, stop) - max(self.low, start))
        key = self.high - self.low, shared
        if key not in self.known:
            own = Fraction(shared * classes, others)
            self.known[key] = (self.high - self.low - own) * self.width
        return self.known[key]
