"""Segments of layers: their work, what they receive and hold; whether a configuration is valid.

A segment is one partition of one copy. It receives what it needs of the neighbouring layers and its
own worker does not hold, on average over its samples. A worker must have room for the largest
segment of every layer, so that a valid configuration fits wherever its segments are placed.

Complexity: O(P·R) a layer. Source: Yan et al., KDD'15 (``W``, ``W'``, ``A``, ``E``, constraints C1
and C2); at most one segment of a layer on each worker, without which copies on one worker would be
free, is ours.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import gcd
from typing import NamedTuple

from planner.families.yan.configuration import Configuration, LayerChoice, check_choice
from planner.families.yan.problem import Problem
from planner.model.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.model.validation import integer


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
    nothing = [[Fraction(0)] * choice.copies] * choice.partitions
    activations = (
        nothing if before is None else _received(problem, place, choice, place - 1, before)
    )
    errors = nothing if after is None else _received(problem, place, choice, place + 1, after)
    segments = []
    for p, workers in enumerate(choice.mapping):
        outgoing = 0
        if place + 1 < len(problem.layers):
            following, into = problem.layers[place + 1], problem.fields[place].into
            outgoing = into(layer, following, units[p + 1]) - into(layer, following, units[p])
        connections = layer.share(layer.connections, held[p + 1])
        connections -= layer.share(layer.connections, held[p])
        neurons = layer.neurons // layer.rows * (held[p + 1] - held[p])
        for r, worker in enumerate(workers):
            traffic = activations[p][r], errors[p][r]
            segments.append(Segment(worker, neurons, connections, outgoing, *traffic))
    return segments


def _received(
    problem: Problem, place: int, choice: LayerChoice, neighbour: int, other: LayerChoice
) -> list[list[Fraction]]:
    """Return the mean numbers that segments receive of another layer, by partition and copy.

    Each copy r' ≡ copy (mod g) of the other layer holds a share g / R' of a copy's samples.
    """
    layer, source = problem.layers[place], problem.layers[neighbour]
    if neighbour < place:  # activations, of the units that the layer before passes on
        cuts, starts = layer.held(choice.partitions), source.passed(other.partitions)
        needed, width = inputs, source.width
    else:  # error terms, of the rows that the next layer holds
        cuts, starts = layer.passed(choice.partitions), source.held(other.partitions)
        needed, width = error_terms, source.neurons // source.rows
    holding = {
        worker: (p, r) for p, row in enumerate(other.mapping) for r, worker in enumerate(row)
    }
    classes = gcd(choice.copies, other.copies)
    known: dict[tuple[int, int], Fraction] = {}  # few differ, and making fractions is slow
    received: list[list[Fraction]] = []
    for p, workers in enumerate(choice.mapping):
        low, high = needed(problem, place, cuts[p], cuts[p + 1])
        received.append([])
        for copy, worker in enumerate(workers):
            shared = 0
            partition, other_copy = holding.get(worker, (-1, -1))
            if partition >= 0 and (other_copy - copy) % classes == 0:
                start, stop = starts[partition], starts[partition + 1]
                shared = max(0, min(high, stop) - max(low, start))
            key = high - low, shared
            if key not in known:
                own = Fraction(shared * classes, other.copies)
                known[key] = (high - low - own) * width
            received[-1].append(known[key])
    return received


# ---
# Memory, and the checks of a configuration.


def worker_bytes(problem: Problem, place: int, partitions: int, threads: int) -> int:
    """Return the memory (bytes) of the largest segment of a layer on a worker.

    It holds weights and their updates, and for each thread the input activations, its own
    activations and error terms, and the error terms it receives.
    """
    layer, constants = problem.layers[place], problem.constants
    if layer.kind == "full":  # the first partition is the largest
        held = units = [0, -(-layer.cuts // partitions)]
    else:
        held, units = layer.held(partitions), layer.passed(partitions)
    each = layer.neurons // layer.rows
    most = 0
    for p in range(len(held) - 1):
        values = 2 * each * (held[p + 1] - held[p])
        if place:
            low, high = inputs(problem, place, held[p], held[p + 1])
            values += (high - low) * problem.layers[place - 1].width
        if place + 1 < len(problem.layers):
            after = problem.layers[place + 1]
            low, high = error_terms(problem, place, units[p], units[p + 1])
            values += (high - low) * (after.neurons // after.rows)
        most = max(most, values)
    weights = 2 * layer.weights_in(held[0], held[1])
    bits = weights * constants.bits_per_weight + threads * most * constants.bits_per_activation
    return -int(-bits // 8)


def server_bytes(problem: Problem, servers: int) -> int:
    """Return the bytes on each parameter server: its share of weights and their updates."""
    bits = 2 * sum(layer.weights for layer in problem.layers) * problem.constants.bits_per_weight
    return -int(-bits // (8 * servers))


def check(problem: Problem, configuration: Configuration) -> None:
    """Raise an error unless `configuration` is valid for the problem.

    Raises
    ------
    InvalidPlanError
        With a path into the configuration; BrokenConstraintError if it needs more machines or
        memory than there are.
    """
    for field in ("parameter_servers", "replicas", "workers_per_replica"):
        _checked(integer, getattr(configuration, field), field, 1)
    used = configuration.machines_used
    if used > problem.machines:
        raise BrokenConstraintError(
            "", f"expected at most {problem.machines} machines, got {used}", "machines"
        )
    if len(configuration.layers) != len(problem.layers):
        raise InvalidPlanError(
            "layers", f"expected {len(problem.layers)}, got {len(configuration.layers)}"
        )
    workers = configuration.workers_per_replica
    for place, (choice, layer) in enumerate(zip(configuration.layers, problem.layers, strict=True)):
        path = f"layers[{place}]"
        _checked(check_choice, choice, layer, workers, problem.threads, path)
        if not choice.mapping:
            raise InvalidPlanError(f"{path}.mapping", "missing")
    _check_machines(problem, configuration)
    if problem.memory_bytes is not None:
        _check_memory(problem, configuration)


def _checked(rule: Callable[..., object], *arguments: object) -> None:
    """Run an input check, and turn its error into InvalidPlanError."""
    try:
        rule(*arguments)
    except InvalidInputError as error:
        raise InvalidPlanError(error.path, error.message) from None


def _check_machines(problem: Problem, configuration: Configuration) -> None:
    machines = configuration.machines
    if machines is None:
        if not problem.uniform:
            raise InvalidPlanError("machines", "missing: these machines differ")
        return
    check_machines(machines, configuration.machines_used, problem.machines, "machines")


def check_machines(machines: Sequence[int], used: int, count: int, path: str) -> None:
    """Raise InvalidPlanError at `path` unless `machines` are `used` distinct ones of `count`."""
    if len(machines) != used:
        raise InvalidPlanError(path, f"expected {used}, got {len(machines)}")
    if len(set(machines)) != len(machines) or not set(machines) <= set(range(count)):
        raise InvalidPlanError(path, f"expected different ones of 0 … {count - 1}")


def _check_memory(problem: Problem, configuration: Configuration) -> None:
    memory = problem.memory_bytes
    assert memory is not None
    needed = server_bytes(problem, configuration.parameter_servers)
    if needed > memory:
        raise BrokenConstraintError(
            "parameter_servers", f"each needs {needed} bytes, has {memory}", "memory_bytes"
        )
    needed = sum(
        worker_bytes(problem, place, choice.partitions, choice.threads)
        for place, choice in enumerate(configuration.layers)
    )
    if needed > memory:
        raise BrokenConstraintError(
            "layers", f"a worker may need {needed} bytes, has {memory}", "memory_bytes"
        )
