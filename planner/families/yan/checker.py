"""Checks that a configuration is valid for the problem and fits in memory.

A worker must have room for the largest segment of every layer, so that a valid configuration fits
wherever its segments are placed.

Complexity: O(Σ P·R). Source: own; constraints C1 and C2 of Yan et al., KDD'15, and at most one
segment of a layer on each worker, without which copies on one worker would be free.
"""

from collections.abc import Callable, Sequence

from planner.families.yan.configuration import Configuration, check_choice
from planner.families.yan.problem import Problem
from planner.families.yan.segments import error_terms, inputs
from planner.model.errors import BrokenConstraintError, InvalidInputError, InvalidPlanError
from planner.model.validation import integer


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
