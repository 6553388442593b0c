"""Inside a barrier stage: a group of iterations, whose tasks exchange gradients among themselves.

Problem. A job of Spark's for every iteration has the driver schedule every task. One barrier stage
has all tasks of a group run side by side, once, and they need to find each other.

Method. Each task is a rank of a job (`planner.runtime.join`), its store at the driver's, as that
of torchrun is at the agent's; or, where tasks cannot reach the driver, at rank 0, whose address all
learn by the barrier's ``allGather``. Spark looks for its answer once a second, so that takes a
second. In an iteration each rank computes the gradient of its partition; a collective program sums
up slices of them; each rank updates the slices that it owns; the program's other half hands them
out.

Guarantee. What a task returns is that of whole groups: a task that fails returns nothing.

Complexity. That of the program, and once a group that of meeting. Source. Venkataraman, Ding and
Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle on Apache Spark".
"""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from planner.collectives.recipes import Recipe, made
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.spark.training import Reached, Training, Vector, checked
from planner.runtime.world.joining import join

__all__ = ["Meeting", "TaskResult", "run_group"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the tasks of a group meet.

    Attributes
    ----------
    name : str
        Of this attempt at this group alone.
    address : tuple of str and int, optional
        Host and port of the driver's store; without, tasks tell each other where rank 0 is.
    timeout_s : float
        How long a rank waits for another one.
    interfaces : tuple of str, optional
        Network interfaces to use, as of `planner.runtime.join`.
    """

    name: str
    address: tuple[str, int] | None
    timeout_s: float
    interfaces: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task brings back.

    Attributes
    ----------
    rank : int
        Which one.
    loop_ns, compute_ns : int
        How long all iterations lasted, and of that how long it computed gradients.
    weights : array or None
        All of them, of rank 0.
    state : list of (int, array)
        The pieces of the state that it owns, and where they begin.
    """

    rank: int
    loop_ns: int
    compute_ns: int
    weights: Vector | None
    state: list[tuple[int, Vector]]


def run_group(
    rows: Iterator[Any],
    training: Training,
    reached: Reached,
    iterations: int,
    recipe: Recipe,
    meeting: Meeting,
) -> TaskResult:
    """Run a group of iterations as one task of its barrier stage."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    rank, size = context.partitionId(), len(context.getTaskInfos())
    own = list(rows)
    weights, state = reached.weights.copy(), reached.state.copy()
    if size == 1:
        return _alone(own, training, reached, weights, state, iterations)
    host, port = meeting.address or _address_of_first(context, rank)
    held = meeting.address is not None
    with (
        _launched(rank, size, host, port, meeting.name, held),
        join(meeting.timeout_s, meeting.interfaces) as world,
    ):
        summing = Interpreter(world, made(recipe))
        try:
            return _exchanging(own, training, reached, weights, state, iterations, summing, rank)
        finally:
            summing.close()


def _exchanging(
    own: Sequence[Any],
    training: Training,
    reached: Reached,
    weights: Vector,
    state: Vector,
    iterations: int,
    summing: Interpreter,
    rank: int,
) -> TaskResult:
    size = summing.program.ranks
    flat = torch.from_numpy(weights)
    means = torch.empty_like(flat)
    pieces = [
        [piece.numpy() for piece in summing.owned(torch.from_numpy(row))]
        for row in (weights, means.numpy(), *state)
    ]
    starts = [int(piece[0]) for piece in summing.owned(_places(flat))]
    computed = 0
    begun = time.perf_counter_ns()
    for iteration in range(reached.iteration, reached.iteration + iterations):
        start = time.perf_counter_ns()
        gradient = checked(training.gradient(weights, own, iteration, rank), weights)
        computed += time.perf_counter_ns() - start
        np.divide(gradient, size, out=means.numpy())
        summing.reduce_scatter(means)
        for part, mean, *rows in zip(*pieces, strict=True):
            _update(training, part, mean, rows)
        summing.all_gather(flat)
    loop = time.perf_counter_ns() - begun
    kept = [
        (start, np.stack(rows)) for start, *rows in zip(starts, *pieces[2:], strict=True) if rows
    ]
    return TaskResult(rank, loop, computed, None if rank else weights, kept)


def _places(flat: torch.Tensor) -> torch.Tensor:
    """Return where each element stands, in a type of the same size: so it is cut alike."""
    kind = torch.int32 if flat.element_size() == 4 else torch.int64
    return torch.arange(flat.numel(), dtype=kind)


def _update(training: Training, part: Vector, mean: Vector, rows: Sequence[Vector]) -> None:
    """Update some weights in place, and their state."""
    state = np.stack(rows) if rows else np.zeros((0, part.size), part.dtype)
    training.update(part, mean, state)
    for row, values in zip(rows, state, strict=True):
        row[:] = values


def _alone(
    own: Sequence[Any],
    training: Training,
    reached: Reached,
    weights: Vector,
    state: Vector,
    iterations: int,
) -> TaskResult:
    computed = 0
    begun = time.perf_counter_ns()
    for iteration in range(reached.iteration, reached.iteration + iterations):
        start = time.perf_counter_ns()
        gradient = checked(training.gradient(weights, own, iteration, 0), weights)
        computed += time.perf_counter_ns() - start
        training.update(weights, gradient, state)
    return TaskResult(0, time.perf_counter_ns() - begun, computed, weights, [(0, state)])


def _address_of_first(context: Any, rank: int) -> tuple[str, int]:
    """Return where rank 0 will listen, as it says itself: Spark looks once a second."""
    told = ""
    if rank == 0:
        host = context.getTaskInfos()[0].address.rpartition(":")[0]
        with socket.socket() as free:
            free.bind((host, 0))
            told = f"{host}:{free.getsockname()[1]}"
    host, _, port = str(context.allGather(told)[0]).rpartition(":")
    return host, int(port)


@contextmanager
def _launched(
    rank: int, size: int, host: str, port: int, attempt: str, held: bool
) -> Iterator[None]:
    """Say in the environment what a launcher says; the process runs other tasks later."""
    told = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": attempt,
        "TORCHELASTIC_USE_AGENT_STORE": str(held),
    }
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
