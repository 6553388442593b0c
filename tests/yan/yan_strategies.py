"""Networks, constants, problems and configurations drawn by Hypothesis.

And problems small enough for brute force, and what brute force says of them.
"""

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from hypothesis import strategies as st
from yan_brute_force import assignments, brute_force
from yan_brute_force import configurations as all_configurations

from planner.families.yan import YAN, solve
from planner.families.yan.configuration import (
    Configuration,
    LayerChoice,
    Plan,
    Ranked,
    canonical_mapping,
)
from planner.families.yan.family import Method
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import Estimate, estimate
from planner.families.yan.problem import Choice, Constants, Problem
from planner.families.yan.problem import choices as choices_of
from planner.model.errors import BrokenConstraintError
from planner.solving.deadline import NEVER, Deadline
from planner.solving.result import Result
from tests.perturbed import CASES
from tests.solved import Solved

Rank = tuple[Fraction, int, int, int]

TINY: Problem = CASES["yan"].example


@st.composite
def networks(
    draw: st.DrawFn, *, min_layers: int = 1, max_layers: int = 4
) -> tuple[NeuronLayer, ...]:
    """Convolutions, then fully connected layers; either may be missing, or be blocks.

    There are times of some.
    """
    count = min_layers + max_layers - draw(st.integers(min_layers, max_layers))
    convolutions = draw(st.integers(0, count))
    layers: list[NeuronLayer] = []
    for place in range(count):
        make = _convolutions if place < convolutions else _full_layers
        if draw(st.integers(0, 2)) == 0:
            make = _blocks
        layer = draw(make(f"layer{place}", layers[-1] if layers else None))
        if draw(st.integers(0, 2)) == 0:
            layer = replace(layer, forward_ns=draw(_decimals), backward_ns=draw(_decimals))
        layers.append(layer)
    return tuple(layers)


@st.composite
def _full_layers(draw: st.DrawFn, name: str, before: NeuronLayer | None) -> NeuronLayer:
    neurons = draw(st.integers(1, 7))
    inputs = draw(st.integers(1, 6)) if before is None else before.outputs
    connections = neurons * inputs
    return NeuronLayer(
        name, "full", neurons, connections, connections + neurons * draw(st.booleans())
    )


@st.composite
def _convolutions(draw: st.DrawFn, name: str, before: NeuronLayer | None) -> NeuronLayer:
    kernel, stride = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    if before is None or before.shape is None:
        sides = [draw(st.integers(1, 9)), draw(st.integers(1, 4))]
        inputs = draw(st.integers(1, 3))
        reached = None
    else:
        passed = [length // before.pool for length in before.shape[1:]]
        needed = max(0, kernel - min(passed))  # so that one position fits
        padding = draw(st.integers(-(-needed // 2), kernel - 1)) if kernel > 1 else 0
        sides = [(length + 2 * padding - kernel) // stride + 1 for length in passed]
        inputs = draw(st.sampled_from([d for d in (1, 2, 3) if before.shape[0] % d == 0]))
        reached = 1
        for length, positions in zip(passed, sides, strict=True):
            top = max(0, (positions - 1) * stride + kernel - length) // 2
            starts = [position * stride - top for position in range(positions)]
            reached *= sum(min(length, at + kernel) - max(0, at) for at in starts)
    channels = draw(st.integers(1, 3))
    neurons = channels * sides[0] * sides[1]
    connections = neurons * inputs * kernel**2
    if draw(st.booleans()):  # leave out connections into padding
        if reached is None:
            connections = draw(st.integers(neurons * inputs, connections))
        else:
            connections = channels * inputs * reached
    weights = channels * inputs * kernel**2 + channels * draw(st.booleans())
    pool = draw(st.integers(1, min(3, *sides)))
    shape = (channels, sides[0], sides[1])
    return NeuronLayer(name, "conv", neurons, connections, weights, shape, kernel, stride, pool)


@st.composite
def _blocks(draw: st.DrawFn, name: str, before: NeuronLayer | None) -> NeuronLayer:
    """Several layers in one: cut into bands of rows, or not cut."""
    channels, rows, columns = (draw(st.integers(1, most)) for most in (3, 7, 3))
    kernel, stride = None, 1
    if draw(st.booleans()) and (before is None or before.shape is not None):
        kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 2))
        if before is not None and before.shape is not None:
            passed = before.shape[1] // before.pool
            needed = max(0, kernel - passed)
            padding = needed + draw(st.integers(0, 2 * (kernel - 1) - needed))
            rows = (passed + padding - kernel) // stride + 1
    neurons = channels * rows * columns
    connections, weights = draw(st.integers(1, 300)), draw(st.integers(0, 40))
    shape = channels, rows, columns
    return NeuronLayer(name, "block", neurons, connections, weights, shape, kernel, stride)


_decimals = st.sampled_from(["0.1", "0.5", "1", "1.25", "2", "3.7", "10"]).map(Fraction)


@st.composite
def constants(draw: st.DrawFn, threads: int) -> Constants:
    """Simple decimals; latency and interference for so many threads."""
    each = st.lists(_decimals, min_size=threads, max_size=threads)
    return Constants(
        muladd_ns=draw(_decimals),
        activation_ns=draw(_decimals),
        error_ns=draw(_decimals),
        latency_ns=draw(each),
        nic_bits_per_s=draw(_decimals) * draw(st.sampled_from([10**9, 10**10, 10**12])),
        interference=draw(each),
        bits_per_activation=draw(st.sampled_from([Fraction(8), Fraction(32)])),
        bits_per_weight=draw(st.sampled_from([Fraction(16), Fraction(32)])),
    )


_speeds = st.sampled_from(["0.25", "0.5", "0.5", "1", "1", "1.5", "2", "3"]).map(Fraction)


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    min_machines: int = 2,
    max_machines: int = 6,
    max_layers: int = 3,
    max_threads: int = 3,
    min_layers: int = 1,
    speeds: bool = False,
    memory: bool = False,
) -> Problem:
    """Any valid problem; with `speeds` machines differ, with `memory` it may be too little."""
    machines = draw(st.integers(min_machines, max_machines))
    layers = draw(networks(min_layers=min_layers, max_layers=max_layers))
    each_machine = st.lists(_speeds, min_size=machines, max_size=machines)
    bits = sum(64 * layer.weights + 128 * layer.neurons for layer in layers)
    return Problem(
        machines=machines,
        cores=draw(st.integers(1, max_threads)),
        layers=layers,
        constants=draw(constants(max_threads)),
        samples=draw(st.integers(1, 60)),
        read_every=draw(st.integers(1, 20)),
        read_model=draw(st.sampled_from(["mean", "min", "max"])),
        partitions=draw(st.sampled_from(["all", "powers_of_two"])),
        memory_bytes=draw(st.integers(1, bits)) if memory else None,
        machine_speeds=draw(st.none() | each_machine) if speeds else None,
        top=draw(st.integers(1, 8)),
    )


@st.composite
def configurations(draw: st.DrawFn, problem: Problem) -> Configuration:
    """A configuration with the canonical mapping; it may need more memory than there is."""
    workers = problem.machines - draw(st.integers(1, problem.machines - 1))
    replicas = draw(st.integers(1, (problem.machines - 1) // workers))
    servers = draw(st.integers(1, problem.machines - replicas * workers))
    chosen = []
    for layer in problem.layers:
        counts = list(range(1, min(layer.cuts, workers) + 1))
        if problem.partitions == "powers_of_two":
            counts = [count for count in counts if count & (count - 1) == 0]
        pairs = [(p, r) for p in counts for r in range(1, workers // p + 1)]
        pairs.sort(key=lambda pair: -min(pair))  # both first: rare, and where most can go wrong
        partitions, copies = draw(st.sampled_from(pairs))
        chosen.append(LayerChoice(partitions, draw(st.integers(1, problem.threads)), copies, ()))
    mappings = canonical_mapping([(one.partitions, one.copies) for one in chosen], workers)
    layers = (replace(one, mapping=own) for one, own in zip(chosen, mappings, strict=True))
    machines = None
    if not problem.uniform or draw(st.booleans()):
        used = servers + replicas * workers
        machines = tuple(draw(st.permutations(range(problem.machines)))[:used])
    return Configuration(servers, replicas, workers, tuple(layers), machines)


@st.composite
def any_configurations(draw: st.DrawFn, problem: Problem) -> Configuration:
    """A configuration with any valid mapping."""
    drawn = draw(configurations(problem))
    layers = []
    for choice in drawn.layers:
        workers, each = draw(st.permutations(range(drawn.workers_per_replica))), choice.copies
        mapping = (tuple(workers[p * each : (p + 1) * each]) for p in range(choice.partitions))
        layers.append(replace(choice, mapping=tuple(mapping)))
    return replace(drawn, layers=tuple(layers))


def solved(problem: Problem, method: str = "auto") -> Solved[Plan]:
    """Return the answer to a problem that has a plan."""
    return Solved.of(solve(problem, method=method))


def alike(time: float | Fraction, threads: int = 1, nic: float = 10**9, **more: Any) -> Constants:
    """Return constants of which every time is the same, but for those that are given."""
    known: dict[str, Any] = dict.fromkeys(("muladd_ns", "activation_ns", "error_ns"), time)
    known |= {"latency_ns": (time,) * threads, "nic_bits_per_s": nic}
    return Constants(**{**known, "interference": (1,) * threads, **more})


def mapped(chosen: list[Choice], workers: int, threads: int = 1) -> tuple[LayerChoice, ...]:
    """Return layers of these partitions and copies, mapped canonically."""
    mappings = canonical_mapping(chosen, workers)
    return tuple(LayerChoice(len(one), threads, len(one[0]), one) for one in mappings)


def priced(problem: Problem) -> int:
    """How many configurations brute force prices."""
    count = 0
    for workers in range(1, problem.machines):
        each = prod(
            len(choices_of(problem, layer, workers)) * problem.threads for layer in problem.layers
        )
        for replicas in range(1, (problem.machines - 1) // workers + 1):
            for servers in range(1, problem.machines - workers * replicas + 1):
                count += each * len(list(assignments(problem, workers, replicas, servers)))
    return count


@st.composite
def small_problems(
    draw: st.DrawFn, *, most: int = 250, memory: bool = False, speeds: bool = False
) -> Problem:
    """A problem with at most so many configurations, or nearly so; reduced where it has more."""
    problem = draw(problems(max_machines=5, max_threads=2, memory=memory, speeds=speeds))
    problem = replace(problem, max_copies=draw(st.none() | st.integers(1, 3)))
    while priced(problem) > most:
        if problem.threads > 1 and draw(st.booleans()):
            problem = replace(problem, cores=1)
        elif len(problem.layers) > 2 and draw(st.booleans()):
            problem = replace(problem, layers=problem.layers[:-1])
        elif problem.machines > 3:
            fewer, known = problem.machines - 1, problem.machine_speeds
            problem = replace(problem, machines=fewer, machine_speeds=known and known[:fewer])
        elif problem.threads > 1:
            problem = replace(problem, cores=1)
        else:
            break
    return problem


@st.composite
def near_ties(draw: st.DrawFn) -> Problem:
    """More threads take as much longer, but for what floating point cannot tell."""
    problem = draw(small_problems(most=300))
    hairs = [draw(st.lists(st.integers(-3, 3), min_size=3, max_size=3)) for _ in range(2)]
    latency, slower = (
        [number * (1 + Fraction(hair, 10**18)) for number, hair in enumerate(some, start=1)]
        for some in hairs
    )
    constants = replace(problem.constants, latency_ns=latency, interference=slower)
    return replace(problem, constants=constants, samples=10**6, read_every=10**18)


def rank(one: Ranked) -> Rank:
    """Time, then more servers, fewer workers, fewer replicas."""
    workers, replicas, servers = one.configuration.triple
    return one.epoch, -servers, workers, replicas


def brute_ranks(problem: Problem) -> list[Rank]:
    """The best of each triple, in order, by brute force; none if nothing fits."""
    outcome = brute_force(replace(problem, top=2**14, fixed=()), Deadline(None))
    return [] if outcome.plan is None else [rank(ranked) for ranked in outcome.plan.ranking]


def brute_result(problem: Problem) -> Result[Plan, Estimate]:
    """The plan of brute force, checked and priced as those of other methods are."""
    return as_method(brute_force, problem)


def as_method(method: Method, problem: Problem) -> Result[Plan, Estimate]:
    """What a function of a problem and a deadline answers, as a method of the family."""
    return YAN.run(problem, "oracle", {"oracle": method}, NEVER)


def everything(problem: Problem) -> list[tuple[Fraction, Configuration]]:
    """Every configuration that fits, and its time."""
    found = []
    for configuration in all_configurations(problem):
        try:
            found.append((estimate(problem, configuration).epoch, configuration))
        except BrokenConstraintError:
            continue
    return found
