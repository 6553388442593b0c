"""Drizzle's groups on Spark: one job, a barrier stage, for as many iterations as the rule says.

Problem. Scheduling an iteration takes the driver time on every task. Schedule a group at once, as
large as keeps the share of scheduling within a band, whatever that takes today.

Method. A group is a barrier stage whose tasks exchange gradients among themselves
(`exchanging`). The driver knows how long the group lasted, and the tasks how long its iterations
did; the rest is scheduling, and `planner.drizzle.adjusted` makes the next size of it. What was
decided is in the record of each group, and in Spark's log as the description of its job.

Guarantee. A group counts once, as a whole: a stage that fails returns nothing, and the group is
submitted again with the weights it began with. (Spark gives up a barrier stage whose results the
driver collects, rather than restart it; it restarts one that is followed by a shuffle, which would
cost every group a second stage.)

Complexity. A job a group. Source. Venkataraman, Ding and Ermolin, "Accelerating Deep Learning
Training with BigDL and Drizzle on Apache Spark"; the rule is that of `planner.drizzle.controller`.
"""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any, Literal

import numpy as np

from planner.collectives.recipes import Recipe, ranks_of
from planner.drizzle import Band, State, adjusted
from planner.drizzle.observed import GROUP_PROPERTY
from planner.errors import EngineError, InvalidInputError
from planner.runtime.spark.connecting import first_line, slots_of, wait_for_slots
from planner.runtime.spark.exchanging import Meeting, TaskResult, run_group
from planner.runtime.spark.training import Reached, Training
from planner.runtime.world.store import reach
from planner.units import counted
from planner.validation import integer

__all__ = ["GroupRecord", "train_groups"]

_ATTEMPTS = 4
_EXECUTORS_S = 60.0
"""How long to wait for executors that are started again."""
_numbers = count()


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One group, as it ran, and what was decided after it.

    Attributes
    ----------
    start, size : int
        Its first iteration, and how many it had.
    wall_ns : int
        From its submission to that of the next.
    loop_ns, compute_ns : int
        How long its iterations lasted on the slowest task, and of that how long the slowest task
        computed.
    overhead : Fraction
        The share of `wall_ns` that was no iteration.
    next_size : int
        How many iterations the next group has.
    failures : tuple of str
        Why earlier attempts at it failed.
    """

    start: int
    size: int
    wall_ns: int
    loop_ns: int
    compute_ns: int
    overhead: Fraction
    next_size: int
    failures: tuple[str, ...] = ()


def train_groups(
    rows: Any,
    training: Training,
    reached: Reached,
    iterations: int,
    *,
    band: Band | None = None,
    group_size: int = 1,
    recipe: Recipe | None = None,
    meet: Literal["driver", "allGather"] = "driver",
    timeout_s: float = 30.0,
    interfaces: Sequence[str] | None = None,
    told: Callable[[GroupRecord], None] | None = None,
) -> tuple[Reached, tuple[GroupRecord, ...]]:
    """Run iterations in groups.

    Parameters
    ----------
    rows : RDD
        The data; each partition is a task in every iteration.
    training : Training
        What an iteration computes.
    reached : Reached
        Where to go on from.
    iterations : int
        How many to run.
    band : Band, optional
        Where to keep the share of scheduling, by changing the group size; without, it stays.
    group_size : int
        Iterations of the first group.
    recipe : Recipe, optional
        By which collective program gradients are summed up; by default BigDL's exchange.
    meet : {"driver", "allGather"}
        Where tasks find each other: at a store of the driver's, or through Spark, in a second more.
    timeout_s : float
        How long a task waits for another one.
    interfaces : sequence of str, optional
        Network interfaces to use, as of `planner.runtime.join`.
    told : callable, optional
        Called with the record of each group.

    Returns
    -------
    tuple
        How far training has come, and a record of each group.

    Raises
    ------
    EngineError
        If there are fewer slots than partitions, or a group fails again and again.
    InvalidInputError
        If an input cannot mean anything.
    """
    context, tasks = rows.context, rows.getNumPartitions()
    chosen = recipe or Recipe("direct", (tasks,))
    if ranks_of(chosen) != tasks:
        raise InvalidInputError("recipe", f"expected one of {tasks} ranks, got {chosen.shape}")
    integer(iterations, "iterations", minimum=0)
    state = State(integer(group_size, "group_size", minimum=1))
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        raise EngineError("barrier stages need spark.dynamicAllocation.enabled=false")
    wait_for_slots(context, tasks, 0 if slots_of(context) else _EXECUTORS_S)
    store = None
    if meet == "driver" and tasks > 1:
        host = context.getConf().get("spark.driver.host")
        store = _store(host, tasks, timeout_s)
    address = None if store is None else (store.host, store.port)
    chosen_interfaces = None if interfaces is None else tuple(interfaces)
    end = reached.iteration + iterations
    records: list[GroupRecord] = []
    why = f"groups of {state.group_size} to begin with"
    try:
        while reached.iteration < end:
            size = min(state.group_size, end - reached.iteration)
            begun = time.perf_counter_ns()
            context.setLocalProperty(GROUP_PROPERTY, str(size))
            context.setJobDescription(
                f"iterations {reached.iteration} to {reached.iteration + size - 1}: {why}"
            )
            results, failures = _run(
                rows, training, reached, size, chosen, address, timeout_s, chosen_interfaces
            )
            start, reached = reached.iteration, _after(reached, size, results)
            wall = time.perf_counter_ns() - begun
            loop = max(result.loop_ns for result in results)
            overhead = max(Fraction(wall - loop, wall), Fraction(0))
            if band is not None and size == state.group_size and not failures:
                before, state = state, adjusted(band, state, overhead)
                why = _decision(before.group_size, state.group_size, overhead, band)
            record = GroupRecord(
                start,
                size,
                wall,
                loop,
                max(result.compute_ns for result in results),
                overhead,
                state.group_size,
                failures,
            )
            records.append(record)
            if told is not None:
                told(record)
    finally:
        context.setLocalProperty(GROUP_PROPERTY, None)
        context.setJobDescription(None)
    return reached, tuple(records)


def _store(host: str, tasks: int, timeout_s: float) -> Any:
    """Return a store that listens where executors reach the driver already.

    Raises
    ------
    EngineError
        If it cannot.
    """
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    try:
        return reach(host, port, tasks, hold=True, timeout_s=timeout_s)
    except RuntimeError as error:
        raise EngineError(f"the driver cannot listen at {host}: {error}") from error


def _run(
    rows: Any,
    training: Training,
    reached: Reached,
    size: int,
    recipe: Recipe,
    address: tuple[str, int] | None,
    timeout_s: float,
    interfaces: tuple[str, ...] | None,
) -> tuple[list[TaskResult], tuple[str, ...]]:
    """Run one group, again if it fails, always from the same weights."""
    from pyspark.errors import PySparkException

    context = rows.context
    failures: list[str] = []
    weights = context.broadcast(reached)
    try:
        while True:
            meeting = Meeting(f"group{next(_numbers)}", address, timeout_s, interfaces)

            def task(own: Any, meeting: Meeting = meeting) -> Any:
                yield run_group(own, training, weights.value, size, recipe, meeting)

            try:
                results = rows.barrier().mapPartitions(task).collect()
                return sorted(results, key=lambda result: result.rank), tuple(failures)
            except Exception as error:
                java = type(error).__module__.partition(".")[0] == "py4j"
                if not (java or isinstance(error, PySparkException)):
                    raise
                failures.append(first_line(error))
                if len(failures) == _ATTEMPTS:
                    raise EngineError(
                        f"iterations {reached.iteration} to {reached.iteration + size - 1} failed "
                        f"{counted(_ATTEMPTS, 'time')}: {failures[-1]}"
                    ) from error
                wait_for_slots(context, rows.getNumPartitions(), _EXECUTORS_S)
    finally:
        weights.unpersist()


def _after(reached: Reached, size: int, results: Sequence[TaskResult]) -> Reached:
    """Return how far training has come with a group."""
    state = np.zeros_like(reached.state)
    for result in results:
        for start, piece in result.state:
            state[:, start : start + piece.shape[1]] = piece
    weights = results[0].weights
    assert weights is not None
    return Reached(reached.iteration + size, weights, state)


def _decision(before: int, after: int, overhead: Fraction, band: Band) -> str:
    share = f"{100 * float(overhead):.1f} % were scheduling"
    low, high = (f"{100 * float(end):.3g} %" for end in (band.low, band.high))
    if after > before:
        return f"groups of {after}, as of {before} {share}, above {high}"
    if after < before:
        return f"groups of {after}, as of {before} {share}, below {low}"
    return f"groups of {after} as before, {share}"
