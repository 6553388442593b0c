"""Exact tie-breaking: rational arithmetic on paths that rounding cannot distinguish.

Problem: the dynamic program of `planner.families.yan.layerwise` rounds; the result and its proof
must not depend on it. Method: only states on paths whose rounded cost is within the rounding error
of the best can be optimal. The program runs on them, mostly a single path, again in fractions.

Guarantee: the exact least time of a triple, or None if there are too many ties.
Complexity: that of the program on the remaining states. Source: own.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from planner.families.yan.configuration import LayerChoice, canonical_mapping
from planner.families.yan.cuts import Array
from planner.families.yan.layer_program import LayerProgram, LayerState, Triple, state_at
from planner.families.yan.model import phases, reading, reading_factor, volume
from planner.families.yan.problem import Problem
from planner.families.yan.segments import segments_of
from planner.families.yan.tables import Choice

MAX_PAIRS = 20_000
"""Most pairs of choices that may be tied."""


class Exact:
    """Costs as fractions from the model itself, cached; machines as fast as the constants say."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.forward = cache(self._forward)
        self.backward = cache(self._backward)
        self.own = cache(self._own)

    def _pair(self, before: Choice, after: Choice) -> tuple[LayerChoice, LayerChoice]:
        room = before[0] * before[1] + after[0] * after[1]
        mappings = canonical_mapping([before, after], room)
        first = LayerChoice(before[0], 1, before[1], mappings[0])
        return first, LayerChoice(after[0], 1, after[1], mappings[1])

    def _share(self, state: LayerState) -> Fraction:
        return Fraction(self.problem.samples, state.threads * state.copies)

    def _forward(self, place: int, before: Choice, state: LayerState) -> Fraction:
        first, second = self._pair(before, state.choice)
        segments = segments_of(self.problem, place, second, first, None)
        times = phases(self.problem, place, state.threads, segments)
        return self._share(state) * sum(times.forward)

    def _backward(self, place: int, state: LayerState, after: Choice) -> Fraction:
        first, second = self._pair(state.choice, after)
        segments = segments_of(self.problem, place, first, None, second)
        times = phases(self.problem, place, state.threads, segments)
        return self._share(state) * sum(times.backward)

    def _own(self, place: int, state: LayerState) -> Fraction:
        mapping = canonical_mapping([state.choice], state.partitions * state.copies)[0]
        choice = LayerChoice(state.partitions, state.threads, state.copies, mapping)
        segments = segments_of(self.problem, place, choice, None, None)
        times = phases(self.problem, place, state.threads, segments)
        total = times.update
        if place == 0:
            total += sum(times.forward)
        if place + 1 == len(self.problem.layers):
            total += sum(times.backward)
        return self._share(state) * total

    def reading(self, place: int, state: LayerState, triple: Triple) -> Fraction:
        """Return the time to read a layer's weights."""
        weights = volume(self.problem.layers[place], *state.choice)
        return reading(self.problem, weights, state.threads, reading_factor(self.problem, *triple))

    def epoch(self, triple: Triple, states: Sequence[LayerState]) -> Fraction:
        """Return the time of an epoch with these layers."""
        total = Fraction(0)
        for place, state in enumerate(states):
            total += self.own(place, state) / triple.replicas + self.reading(place, state, triple)
            if place:
                before = states[place - 1]
                pair = self.forward(place, before.choice, state)
                pair += self.backward(place - 1, before, state.choice)
                total += pair / triple.replicas
        return total


def exact_best(
    exact: Exact, program: LayerProgram, triple: Triple
) -> tuple[Fraction, tuple[LayerState, ...]] | None:
    """Return the exact least time of a triple and its states; None if too many are tied.

    `program` is the rounded program, with every state that an optimal configuration may have.
    """
    values, between = program.values
    limit = float(values[-1].min()) * (1 + 2 * program.tables.error)
    near, pairs = _near(program, values, between, limit)
    if sum(map(len, pairs)) > MAX_PAIRS:
        return None
    known: dict[LayerState, tuple[Fraction, tuple[LayerState, ...]]] = {}
    for place, states in enumerate(near):
        best: dict[LayerState, tuple[Fraction, tuple[LayerState, ...]]] = {}
        leaving: dict[Choice, list[tuple[Fraction, Choice, tuple[LayerState, ...]]]] = {}
        for before, after in pairs[place - 1] if place else ():
            paths = [
                (time + exact.backward(place - 1, state, after) / triple.replicas, path)
                for state, (time, path) in known.items()
                if state.choice == before
            ]
            if paths:
                time, path = min(paths)
                leaving.setdefault(after, []).append((time, before, path))
        for state in states:
            own = exact.own(place, state) / triple.replicas + exact.reading(place, state, triple)
            if not place:
                best[state] = own, (state,)
            elif state.choice in leaving:  # otherwise it was near by rounding only
                time, path = min(
                    (time + exact.forward(place, before, state) / triple.replicas, path)
                    for time, before, path in leaving[state.choice]
                )
                best[state] = own + time, (*path, state)
        known = best
    return min(known.values())


def _near(
    program: LayerProgram, values: list[Array], between: list[Array], limit: float
) -> tuple[list[list[LayerState]], list[list[tuple[Choice, Choice]]]]:
    """Return the states, and the pairs of choices, on paths that cost at most `limit`."""
    togo = program.togo()
    near: list[list[LayerState]] = []
    pairs: list[list[tuple[Choice, Choice]]] = []
    for place, (value, rest) in enumerate(zip(values, togo, strict=True)):
        options = program.options[place]
        tied_states = np.argwhere(value + rest <= limit).tolist()
        near.append([state_at(options, b, h) for b, h in tied_states])
        if not place:
            continue
        earlier = program.options[place - 1]
        among = sorted({b for b, _ in tied_states})
        ahead, _ = program.tables.pair(place, earlier, [options[b] for b in among])
        right = ahead / program.replicas + (program.own[place] + rest)[among]
        tied = np.argwhere(between[place - 1][:, among] + right.min(axis=2) <= limit).tolist()
        pairs.append([(earlier[a], options[among[column]]) for a, column in tied])
    return near, pairs
