"""How far configurations lie apart from the best: the median and the worst one.

Problem: what the middle and the worst configuration of the space are.

Method: the worst of each triple by the dynamic program of `planner.families.yan.layerwise` with the
most in place of the least; of servers the fewest, as more never cost more. The median by a sample
drawn uniformly from all configurations (a triple as often as it has configurations), priced by the
tables of the search; what is returned is priced exactly.

Guarantee: `worst` is the worst configuration under the canonical mapping, but for rounding. The
median is that of the sample.

Complexity: `worst` O(N·ln N·L·K·C²) with C choices a layer, refused above `MAX_STEPS`; the median
O(samples·L·P) beside the tables. Source: own; figures in Yan et al., KDD'15.
"""

from bisect import bisect
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import prod
from random import Random
from typing import NamedTuple

import numpy as np

from planner.families.yan.configuration import Configuration, Explored, Plan, Ranked, Triple
from planner.families.yan.exact import any_mapping_bound
from planner.families.yan.layer_program import LayerState, state_at
from planner.families.yan.memory import infeasibility
from planner.families.yan.model import estimate, reading_factor
from planner.families.yan.problem import Problem, refuse_different, refuse_fixed
from planner.families.yan.search import Engine, configuration_of
from planner.families.yan.tables import Array
from planner.model.errors import BrokenConstraintError, NotApplicableError
from planner.solving.deadline import NEVER, Deadline, TimeUpError
from planner.solving.methods import Outcome

MAX_STEPS = 2**30
"""Most sums the search for the worst takes: some seconds."""

SAMPLES = 10_000
"""Configurations of which the median is taken."""

TRIES = 20
"""Draws for each configuration that is to fit in memory."""


def median(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Return a configuration in the middle: of a sample, half are no slower.

    Raises
    ------
    NotApplicableError
        If machines differ, configurations are fixed, or hardly any configuration fits in memory.
    """
    nothing = _refused(problem, "median")
    if nothing is not None:
        return nothing
    drawn = sample(problem, SAMPLES, 0, deadline)
    return _outcome(
        problem,
        drawn.engine,
        drawn.configuration((len(drawn.order) - 1) // 2),
        deadline,
        drawn.timed_out,
    )


def worst(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Find the worst configuration.

    Raises
    ------
    NotApplicableError
        If machines differ, configurations are fixed, the space is too large, or the worst
        configuration does not fit in memory.
    """
    nothing = _refused(problem, "worst")
    if nothing is not None:
        return nothing
    engine = Engine(problem, deadline=deadline)
    triples = [
        Triple(workers, replicas, engine.space.fewest_servers)
        for workers, replicas in engine.space.pairs()
    ]
    steps = engine.tables.problem.threads * sum(
        options.count(triple.workers) ** 2
        for triple in triples
        for options in engine.layerwise.options
    )
    if steps > MAX_STEPS:
        raise NotApplicableError(
            "method", "the space is too large to find its worst configuration; use 'median'"
        )
    triple, timed_out = _worst_triple(engine, triples, deadline)
    configuration = configuration_of(triple, _worst_states(engine, triple))
    try:
        return _outcome(problem, engine, configuration, deadline, timed_out)
    except BrokenConstraintError:
        raise NotApplicableError(
            "memory_bytes", "the worst configuration does not fit; leave it out, or use 'median'"
        ) from None


def _refused(problem: Problem, method: str) -> Outcome[Plan] | None:
    refuse_different(problem, method)
    refuse_fixed(problem, method)
    nothing = infeasibility(problem)
    return None if nothing is None else Outcome(None, infeasibility=nothing)


def _outcome(
    problem: Problem,
    engine: Engine,
    configuration: Configuration,
    deadline: Deadline,
    timed_out: bool,
) -> Outcome[Plan]:
    ranked = Ranked(configuration, estimate(problem, configuration).epoch)
    bound = any_mapping_bound(problem, deadline)
    explored = Explored(engine.space.count, 0)
    proven = None if bound is None else Fraction(bound)
    return Outcome(Plan(configuration, (ranked,), explored, bound), proven, timed_out)


def _worst_triple(
    engine: Engine, triples: Sequence[Triple], deadline: Deadline
) -> tuple[Triple, bool]:
    """Return the triple of the worst configuration; the first one if the time is up."""
    layerwise = engine.layerwise
    program = layerwise.whole_program(max(triples))  # of one replica, as it has most workers
    owns = []
    for triple in triples:
        if deadline.passed:
            return triples[0], True
        owns.append(layerwise.whole_program(triple).own)
    values = [own[0] for own in owns]
    for place in range(1, len(program.options)):
        own = [costs[place] for costs in owns]
        counts = [len(costs) for costs in own]
        arrived = [np.zeros_like(costs) for costs in own]
        rows = np.arange(len(program.options[place - 1]))
        for block, ahead, back in program.blocks(place, rows):
            for which, triple in enumerate(triples):
                if deadline.passed:
                    return triples[0], True
                share = 1 / triple.replicas
                here = slice(block.start, min(block.stop, counts[which]))
                width = here.stop - here.start
                if width <= 0:
                    continue
                count = len(values[which])
                left = values[which][:, None, :] + back[:count, :width] * share
                arriving = ahead[:count, :width] * share + left.max(axis=2)[:, :, None]
                arrived[which][here] = arriving.max(axis=0)
        values = [cost + more for cost, more in zip(own, arrived, strict=True)]
    return triples[int(np.argmax([costs.max() for costs in values]))], False


def _worst_states(engine: Engine, triple: Triple) -> list[LayerState]:
    """Return the worst layers of one triple."""
    program = engine.layerwise.whole_program(triple)
    values, between = [program.own[0]], []
    for place in range(1, len(program.options)):
        left = np.empty((len(values[-1]), len(program.options[place])))
        arrived = np.empty_like(program.own[place])
        for block, ahead, back in program.blocks(place, np.arange(len(values[-1]))):
            left[:, block] = (values[-1][:, None, :] + back).max(axis=2)
            arrived[block] = (ahead + left[:, block, None]).max(axis=0)
        values.append(program.own[place] + arrived)
        between.append(left)
    b, h = divmod(int(values[-1].argmax()), values[-1].shape[1])
    states = [state_at(program.options[-1], b, h)]
    for place in range(len(values) - 1, 0, -1):
        options = program.options[place - 1]
        ahead, back = engine.tables.pair(place, options, [program.options[place][b]])
        a = int((ahead[:, 0, h] / triple.replicas + between[place - 1][:, b]).argmax())
        h = int((values[place - 1][a] + back[a, 0] / triple.replicas).argmax())
        b = a
        states.append(state_at(options, b, h))
    return states[::-1]


class Sample(NamedTuple):
    """Configurations drawn, and their places by time."""

    engine: Engine
    triples: list[Triple]
    states: list[list[tuple[int, int]]]
    order: list[int]
    timed_out: bool

    def configuration(self, rank: int) -> Configuration:
        """Return the one at a place in the order of times."""
        which = self.order[rank]
        options = self.engine.layerwise.options
        return configuration_of(
            self.triples[which],
            [
                state_at(options_of_layer.choices, *state)
                for options_of_layer, state in zip(options, self.states[which], strict=True)
            ],
        )


def sample(problem: Problem, samples: int, seed: int, deadline: Deadline) -> Sample:
    """Draw from all configurations that fit, each as likely as the others, and price them.

    Parameters
    ----------
    problem : Problem
        What to plan; its machines alike.
    samples : int
        Configurations to draw.
    seed : int
        Of the sample.
    deadline : Deadline
        When to leave it at those drawn so far.

    Raises
    ------
    NotApplicableError
        If hardly any configuration fits in memory.
    """
    engine = Engine(problem, deadline=deadline)
    layerwise, memory, threads = engine.layerwise, engine.memory, engine.tables.problem.threads
    pairs = list(engine.space.pairs())

    @cache
    def counts(workers: int) -> tuple[int, ...]:
        return tuple(options.count(workers) * threads for options in layerwise.options)

    sums = list(
        accumulate(
            prod(counts(workers)) * len(engine.space.servers(workers, replicas))
            for workers, replicas in pairs
        )
    )
    random = Random(seed)
    triples: list[Triple] = []
    states: list[list[tuple[int, int]]] = []
    timed_out = False
    for _ in range(samples * TRIES):
        if len(triples) == samples:
            break
        if deadline.passed and triples:
            timed_out = True
            break
        workers, replicas = pairs[bisect(sums, random.randrange(sums[-1]))]
        servers = random.choice(engine.space.servers(workers, replicas))
        drawn = [divmod(random.randrange(count), threads) for count in counts(workers)]
        if memory is not None:
            options = zip(layerwise.options, drawn, strict=True)
            if not memory.fits([state_at(among.choices, *state) for among, state in options]):
                continue
        triples.append(Triple(workers, replicas, servers))
        states.append(drawn)
    if not triples:
        raise NotApplicableError("memory_bytes", "hardly any configuration fits")
    try:
        times = _times(engine, triples, np.array(states), deadline)
    except TimeUpError:  # the first drawn is as good as any
        return Sample(engine, triples[:1], states[:1], [0], timed_out=True)
    return Sample(engine, triples, states, np.argsort(times, kind="stable").tolist(), timed_out)


def _times(
    engine: Engine, triples: Sequence[Triple], states: Array, deadline: Deadline = NEVER
) -> Array:
    """Return what an epoch takes in each configuration, but for rounding."""
    layerwise, tables = engine.layerwise, engine.tables
    replicas = np.array([triple.replicas for triple in triples], dtype=float)
    factor = np.array([float(reading_factor(engine.problem, *triple)) for triple in triples])
    reads = tables.reads
    total = np.zeros(len(triples))
    for place, layer_options in enumerate(layerwise.options):
        deadline.check()
        row, thread = states[:, place].T
        ends = np.array([tables.ends(place, choice) for choice in layer_options.choices])
        total += ends[row, thread] / replicas
        volumes = layer_options.volumes[row]  # nothing starts no transfer
        sending = factor * volumes * tables.read_weight[thread]
        total += reads * (np.where(volumes > 0, tables.latency[thread], 0.0) + sending)
        if place:
            # Only pairs of choices that were drawn are priced, each once.
            earlier, before = states[:, place - 1].T
            options = layerwise.options[place - 1].choices
            for a in np.unique(earlier).tolist():
                deadline.check()
                mine = np.flatnonzero(earlier == a)
                rows, which = np.unique(row[mine], return_inverse=True)
                ahead, back = tables.pair(
                    place, [options[a]], [layer_options.choices[b] for b in rows.tolist()]
                )
                both = ahead[0, which, thread[mine]] + back[0, which, before[mine]]
                total[mine] += both / replicas[mine]
    return total
