"""Measures what the canonical mapping, and the paper's greedy one, lose against all mappings.

    python benchmarks/yan_mappings.py [--cases N] [--seed SEED]

Random tiny networks (convolutions, fully connected layers, and both) on up to five machines, with
random constants: over all configurations; over those with one replica and one server; and of random
partitions and copies of each layer, mostly bad ones, on up to five workers.

The optimum over all mappings is found by brute force over where the segments of each two layers in
a row are relative to each other: what a layer costs depends on nothing else, and workers can be
renamed, so these placements can be chosen one by one.

Prints how often each method is optimal, and its mean and its worst loss.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from random import Random
from statistics import fmean

import numpy as np
from tables import head, row

from planner.families.yan import Constants, NeuronLayer, Problem, estimate, solve
from planner.families.yan.configuration import LayerChoice, Triple
from planner.families.yan.greedy import Greedy
from planner.families.yan.model import phases, reading, reading_factor, volume
from planner.families.yan.problem import Choice, choices
from planner.families.yan.search import Engine, configuration_of
from planner.families.yan.segments import segments_of

KINDS = ("conv", "full", "mixed")
METHODS = ("exact", "greedy")
SAME = 1e-12
"""Losses below are rounding."""

State = tuple[Choice, int]
"""Partitions and copies, and threads."""


def placements(segments: int, others: int, workers: int) -> Iterator[tuple[int, ...]]:
    """Yield workers for segments in all ways that differ, if others are on the first workers.

    Of workers without anything the first free one is taken.
    """
    for some in permutations(range(workers), segments):
        empty = [worker for worker in some if worker >= others]
        if empty == list(range(others, others + len(empty))):
            yield some


def layer_choice(choice: Choice, threads: int, on: Sequence[int]) -> LayerChoice:
    """Return a layer whose segments, by partition and copy, are on given workers."""
    p, r = choice
    mapping = tuple(tuple(on[part * r : (part + 1) * r]) for part in range(p))
    return LayerChoice(p, threads, r, mapping)


def pair_costs(
    problem: Problem, place: int, before: Choice, after: Choice, workers: int
) -> dict[tuple[int, int], Fraction]:
    """Return the least that layer `place` and the one before it take because of each other.

    Over all placements, for one replica, by threads of the earlier and of the later layer.
    """
    count = before[0] * before[1]
    first = layer_choice(before, 1, range(count))
    every = range(1, problem.threads + 1)
    best: dict[tuple[int, int], Fraction] = {}
    for on in placements(after[0] * after[1], count, workers):
        second = layer_choice(after, 1, on)
        ahead = segments_of(problem, place, second, first, None)
        back = segments_of(problem, place - 1, first, None, second)
        forward, backward = [], []
        for threads in every:
            share = Fraction(problem.samples, threads)
            forward.append(sum(phases(problem, place, threads, ahead).forward) * share / after[1])
            backward.append(
                sum(phases(problem, place - 1, threads, back).backward) * share / before[1]
            )
        for h in every:
            for k in every:
                time = backward[h - 1] + forward[k - 1]
                best[h, k] = min(time, best.get((h, k), time))
    return best


def own_cost(problem: Problem, place: int, state: State) -> Fraction:
    """Return what a layer of one replica takes whatever its neighbours do, but for reading."""
    choice, threads = state
    layer = layer_choice(choice, threads, range(choice[0] * choice[1]))
    found = phases(problem, place, threads, segments_of(problem, place, layer, None, None))
    total = found.update
    if place == 0:
        total += sum(found.forward)
    if place + 1 == len(problem.layers):
        total += sum(found.backward)
    return total * Fraction(problem.samples, threads * choice[1])


def best_of_all_mappings(problem: Problem) -> Fraction:
    """Return the least time of an epoch over all configurations and mappings; memory is ignored."""
    return min(best_with_workers(problem, workers) for workers in range(1, problem.machines))


def best_with_workers(problem: Problem, workers: int) -> Fraction:
    """Return the least time with so many workers a replica."""
    best: Fraction | None = None
    options = [choices(problem, layer, workers) for layer in problem.layers]
    states = [
        [(choice, threads) for choice in some for threads in range(1, problem.threads + 1)]
        for some in options
    ]
    own = [
        {state: own_cost(problem, place, state) for state in some}
        for place, some in enumerate(states)
    ]
    pairs = [
        {
            (before, after): pair_costs(problem, place, before, after, workers)
            for before in options[place - 1]
            for after in options[place]
        }
        for place in range(1, len(options))
    ]
    for replicas in range(1, (problem.machines - 1) // workers + 1):
        servers = problem.machines - workers * replicas  # more never cost more
        factor = reading_factor(problem, workers, replicas, servers)
        known: dict[State, Fraction] = {}
        for place, layer in enumerate(problem.layers):
            reached = {}
            for state in states[place]:
                (p, r), threads = state
                time = own[place][state] / replicas
                time += reading(problem, volume(layer, p, r), threads, factor)
                if place:
                    time += min(
                        value + pairs[place - 1][earlier[0], (p, r)][earlier[1], threads] / replicas
                        for earlier, value in known.items()
                    )
                reached[state] = time
            known = reached
        least = min(known.values())
        best = least if best is None else min(best, least)
    assert best is not None
    return best


def random_network(random: Random, kind: str) -> list[NeuronLayer]:
    """Return two or three small layers."""
    count = random.randint(2, 3)
    convolutions = {"conv": count, "full": 0, "mixed": random.randint(1, count - 1)}[kind]
    layers: list[NeuronLayer] = []
    for place in range(count):
        if place < convolutions:
            before = layers[-1] if layers else None
            inputs = before.shape[0] if before is not None and before.shape else 3
            rows = before.cuts if before is not None else random.randint(4, 12)
            channels, kernel = random.randint(1, 6), random.choice([1, 3, 5])
            kernel = min(kernel, 2 * rows - 1)
            neurons = channels * rows * rows
            layers.append(
                NeuronLayer(
                    f"conv{place}",
                    "conv",
                    neurons,
                    neurons * inputs * kernel**2,
                    channels * inputs * kernel**2,
                    (channels, rows, rows),
                    kernel,
                    pool=random.choice([1, 1, min(2, rows)]),
                )
            )
        else:
            inputs = layers[-1].outputs if layers else random.randint(2, 30)
            neurons = random.randint(2, 30)
            layers.append(
                NeuronLayer(f"full{place}", "full", neurons, neurons * inputs, neurons * inputs)
            )
    return layers


def random_problem(random: Random, kind: str) -> Problem:
    """Return a problem in which computation and communication are of like weight, or not."""

    def about(value: float) -> Fraction:
        return Fraction(round(value * 10 ** random.uniform(-2, 2), 3)).limit_denominator(1000)

    return Problem(
        machines=random.randint(4, 5),
        cores=2,
        layers=random_network(random, kind),
        constants=Constants(
            muladd_ns=about(1),
            activation_ns=about(2),
            error_ns=about(2),
            latency_ns=[about(10), about(10)],
            nic_bits_per_s=about(10) * 10**9,
            interference=[Fraction(1), Fraction(random.randint(20, 40), 20)],
        ),
        samples=10**6,
        read_model=random.choice(["mean", "min", "max"]),
        read_every=random.choice([1, 10, 100, 10_000]),
    )


def losses(problem: Problem) -> list[float]:
    """Return by how much each method exceeds the optimum of all mappings."""
    found, bound = [], 0
    for method in METHODS:
        result = solve(problem, method=method)
        assert result.plan is not None
        bound = result.plan.any_mapping_bound_ns or 0
        found.append(result.plan.ranking[0].epoch)
    best = min(found)
    if best > bound:  # else nothing is better
        best = best_of_all_mappings(problem)
    return [float(one / best) - 1 for one in found]


def losses_of_one_replica(problem: Problem) -> list[float]:
    """Return the same of configurations with one replica and one server."""
    triple = Triple(problem.machines - 1, 1, 1)
    engine, greedy = Engine(problem), Greedy(problem)
    canonical, greedily = engine.solve(triple), greedy.path_of(triple)
    assert canonical is not None
    assert greedily is not None
    epoch = estimate(problem, configuration_of(triple, greedily.states, greedily.mappings)).epoch
    best = best_with_workers(problem, triple.workers)
    return [float(one / best) - 1 for one in (engine.exactly(triple).epoch, epoch)]


def losses_of_choices(problem: Problem) -> list[float]:
    """Return the same of random partitions and copies, one replica, one thread."""
    problem = replace(problem, machines=problem.machines + 1, cores=1)
    workers = problem.machines - 1
    random = Random(repr(problem.layers))
    chosen = [random.choice(choices(problem, layer, workers)) for layer in problem.layers]
    triple = Triple(workers, 1, 1)
    solver = Greedy(problem)
    options = solver.layerwise.options
    rows = [
        np.array([one.choices.index(choice)]) for one, choice in zip(options, chosen, strict=True)
    ]
    path = solver.path(solver.layerwise.reduced(triple, rows), workers)
    canonical = configuration_of(triple, path.states)
    found = [
        estimate(problem, one).epoch
        for one in (canonical, configuration_of(triple, path.states, path.mappings))
    ]
    factor = reading_factor(problem, *triple)
    best = Fraction(0)
    for place, (layer, choice) in enumerate(zip(problem.layers, chosen, strict=True)):
        best += own_cost(problem, place, (choice, 1))
        best += reading(problem, volume(layer, *choice), 1, factor)
        if place:
            best += pair_costs(problem, place, chosen[place - 1], choice, workers)[1, 1]
    return [float(one / best) - 1 for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100, help="networks of each kind")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    head(("configurations", "network", "mapping", "cases", "optimal", "mean loss", "worst"))
    measures = {
        "everything": losses,
        "one replica": losses_of_one_replica,
        "random": losses_of_choices,
    }
    for space, measure in measures.items():
        for kind in KINDS:
            random = Random(arguments.seed)
            problems = [random_problem(random, kind) for _ in range(arguments.cases)]
            table = [measure(problem) for problem in problems]
            for method, column in zip(
                ("canonical", "greedy"), zip(*table, strict=True), strict=True
            ):
                optimal = sum(loss < SAME for loss in column) / len(column)
                loss = (f"{optimal:.1%}", f"{fmean(column):.3%}", f"{max(column):.2%}")
                row((space, kind, method, len(column), *loss))


if __name__ == "__main__":
    main()
