"""An iteration as a job of Spark's: by slices, as BigDL does, or through the driver, as MLlib does.

Problem. Gradients of all partitions in, updated weights to all of them, by what Spark has: tasks,
shuffles, broadcasts.

Method. A plan of `planner.bigdl` says which way.

* *Slices.* A stage computes gradients; a shuffle brings slice i of all of them to task i, which
  sums it up and updates its part of the weights. The way back is a second shuffle, which brings
  every part to every task (``back="shuffle"``), or the driver, which collects the parts and
  broadcasts the whole (``back="broadcast"``).
* *Through the driver.* It adds up all gradients itself (`RDD.reduce`), or what ``treeAggregate``
  leaves of them, updates the weights and broadcasts them.

Guarantee. Weights are those of the mean gradient, whichever way; with slices sums are made in the
order of the partitions, the same in every run. A lost executor costs a shuffled way back the parts
it kept; the driver then goes on from the weights it collected last.

Complexity. N slices move E elements from each of m partitions, none of them through the driver; a
driver receives m (or about the root of m) times E. Spark asks for shuffled blocks in an order of
chance: a plan's order of pulls is not imposed.

Source. Venkataraman, Ding and Ermolin, "Accelerating Deep Learning Training with BigDL and Drizzle
on Apache Spark", Fig. 2.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from planner.bigdl import Driver, Exchange, Plan
from planner.bigdl.methods import tree_levels
from planner.errors import EngineError, InvalidPlanError
from planner.runtime.spark.connecting import first_line, slots_of, wait_for_slots
from planner.runtime.spark.training import Reached, Training, Vector, checked
from planner.validation import integer

__all__ = ["train_jobs"]

_ATTEMPTS = 4
_EXECUTORS_S = 60.0

Back = Literal["shuffle", "broadcast"]


def train_jobs(
    rows: Any,
    training: Training,
    reached: Reached,
    iterations: int,
    plan: Plan,
    *,
    back: Back = "shuffle",
    collect_every: int = 10,
) -> Reached:
    """Run iterations, one job each.

    Parameters
    ----------
    rows : RDD
        The data; each partition has a gradient of its own.
    training : Training
        What an iteration computes.
    reached : Reached
        Where to go on from.
    iterations : int
        How many to run.
    plan : Exchange or Driver
        How gradients are summed up. An `Exchange` among N nodes is run by N tasks.
    back : {"shuffle", "broadcast"}
        How the weights of slices come back.
    collect_every : int
        After how many iterations the driver collects weights that come back by a shuffle.

    Raises
    ------
    InvalidPlanError
        If the plan is not about these weights, or Spark would do something else.
    EngineError
        If iterations fail again and again.
    """
    integer(iterations, "iterations", minimum=0)
    integer(collect_every, "collect_every", minimum=1)
    wait_for_slots(rows.context, 1, 0 if slots_of(rows.context) else _EXECUTORS_S)
    if isinstance(plan, Driver):
        _check_driver(plan, rows.getNumPartitions())
        run: Callable[[Reached, int], Reached] = lambda place, _: _through_driver(  # noqa: E731
            rows, training, place, plan
        )
        most = 1
    else:
        _check_slices(plan, reached)
        by_shuffle = back == "shuffle"
        most = collect_every if by_shuffle else 1
        run = lambda place, many: (  # noqa: E731
            _shuffled(rows, training, place, many, plan)
            if by_shuffle
            else _collected(rows, training, place, plan)
        )
    end = reached.iteration + iterations
    while reached.iteration < end:
        reached = _again(run, reached, min(most, end - reached.iteration))
    return reached


def _again(run: Callable[[Reached, int], Reached], reached: Reached, many: int) -> Reached:
    """Run some iterations, again from where they began if what executors kept is lost."""
    from pyspark.errors import PySparkException

    for attempt in range(_ATTEMPTS):
        try:
            return run(reached, many)
        except Exception as error:
            java = type(error).__module__.partition(".")[0] == "py4j"
            if not (java or isinstance(error, PySparkException)):
                raise
            if attempt == _ATTEMPTS - 1:
                raise EngineError(
                    f"iteration {reached.iteration} failed {_ATTEMPTS} times: {first_line(error)}"
                ) from error
    raise AssertionError  # unreachable


def _check_slices(plan: Exchange, reached: Reached) -> None:
    if plan.elements != reached.weights.size:
        raise InvalidPlanError(
            "elements", f"planned for {plan.elements}, the weights have {reached.weights.size}"
        )
    if plan.order != "rotated":
        raise InvalidPlanError(
            "order", "Spark asks for shuffled blocks in an order of chance: no hot spot can be run"
        )


def _check_driver(plan: Driver, tasks: int) -> None:
    if not plan.torrent:
        raise InvalidPlanError(
            "torrent", "Spark's broadcasts are torrents: plan for them (tree_aggregate_torrent)"
        )
    if plan.levels not in ((tasks,), tree_levels(tasks)):
        raise InvalidPlanError(
            "levels", f"expected ({tasks},), or what treeAggregate does: {tree_levels(tasks)}"
        )


def _through_driver(rows: Any, training: Training, reached: Reached, plan: Driver) -> Reached:
    """Run an iteration whose gradients the driver adds up."""
    iteration, tasks = reached.iteration, rows.getNumPartitions()
    weights = rows.context.broadcast(reached.weights)

    def gradient(partition: int, own: Iterator[Any]) -> Iterable[Vector]:
        values = weights.value
        yield checked(training.gradient(values, list(own), iteration, partition), values)

    gradients = rows.mapPartitionsWithIndex(gradient)
    if len(plan.levels) > 1:
        zero = np.zeros_like(reached.weights)
        total = gradients.treeAggregate(zero, np.add, np.add, depth=2)
    else:
        total = gradients.reduce(np.add)
    after, state = reached.weights.copy(), reached.state.copy()
    training.update(after, total / tasks, state)
    weights.unpersist()
    return Reached(iteration + 1, after, state)


def _collected(rows: Any, training: Training, reached: Reached, plan: Exchange) -> Reached:
    """Run an iteration by slices; the driver collects the parts and broadcasts the whole."""
    held = rows.context.broadcast(reached)
    iteration, tasks = reached.iteration, rows.getNumPartitions()

    def gradient(partition: int, own: Iterator[Any]) -> Iterable[tuple[int, tuple[int, Vector]]]:
        weights = held.value.weights
        yield from _cut(
            checked(training.gradient(weights, list(own), iteration, partition), weights),
            partition,
            plan,
        )

    def update(number: int, arrived: Iterator[Any]) -> Iterable[tuple[int, Vector, Vector]]:
        start, stop = plan.slice(number)
        weights = held.value.weights[start:stop].copy()
        state = held.value.state[:, start:stop].copy()
        training.update(weights, _mean(arrived, tasks, weights), state)
        yield number, weights, state

    parts = (
        rows.mapPartitionsWithIndex(gradient)
        .partitionBy(plan.nodes, _same)
        .mapPartitionsWithIndex(update)
        .collect()
    )
    held.unpersist()
    return _whole(parts, iteration + 1, reached, plan)


def _shuffled(
    rows: Any, training: Training, reached: Reached, iterations: int, plan: Exchange
) -> Reached:
    """Run iterations by slices whose parts stay with the executors, and collect the last ones."""
    context, tasks = rows.context, rows.getNumPartitions()
    held = context.broadcast(reached)
    whole = rows.glom()
    parts: Any = context.parallelize(range(plan.nodes), plan.nodes).map(
        lambda number: (
            number,
            held.value.weights[slice(*plan.slice(number))],
            held.value.state[:, slice(*plan.slice(number))],
        )
    )
    before = None
    for iteration in range(reached.iteration, reached.iteration + iterations):
        parts = _next(whole, parts, training, iteration, plan, tasks).persist()
        parts.localCheckpoint()  # lineage would grow with every iteration
        parts.count()
        if before is not None:
            before.unpersist()
        before = parts
    collected = parts.collect()
    parts.unpersist()
    held.unpersist()
    return _whole(collected, reached.iteration + iterations, reached, plan)


def _next(
    whole: Any, parts: Any, training: Training, iteration: int, plan: Exchange, tasks: int
) -> Any:
    """Return the parts after an iteration, of those before it.

    Every task gets all parts of the weights; task i, which comes to slice i, passes that part and
    its state on to whom sums it up.
    """
    size, nodes = plan.elements, plan.nodes

    def everywhere(part: tuple[int, Vector, Vector]) -> Iterable[tuple[int, Any]]:
        number, weights, state = part
        for task in range(tasks):
            yield task, (number, weights, state if task == number % tasks else None)

    def gradient(
        partition: int, pair: Iterator[tuple[list[Any], list[Any]]]
    ) -> Iterable[tuple[int, tuple[int, Any]]]:
        ((own, arrived),) = pair
        weights = np.empty(size, arrived[0][1].dtype)
        for number, values, state in arrived:
            weights[slice(*plan.slice(number))] = values
            if state is not None:
                yield number, (-1, (values, state))
        yield from _cut(
            checked(training.gradient(weights, own, iteration, partition), weights),
            partition,
            plan,
        )

    def update(number: int, arrived: Iterator[Any]) -> Iterable[tuple[int, Vector, Vector]]:
        pieces = sorted(arrived, key=lambda piece: piece[1][0])
        weights, state = (values.copy() for values in pieces[0][1][1])
        training.update(weights, _mean(pieces[1:], tasks, weights), state)
        yield number, weights, state

    assert nodes >= 1
    arrived = parts.flatMap(everywhere).partitionBy(tasks, _same).values().glom()
    return (
        whole.zip(arrived)
        .mapPartitionsWithIndex(gradient)
        .partitionBy(nodes, _same)
        .mapPartitionsWithIndex(update)
    )


def _same(key: int) -> int:
    return key


def _cut(
    gradient: Vector, partition: int, plan: Exchange
) -> Iterable[tuple[int, tuple[int, Vector]]]:
    """Yield the slices of a gradient, each for whom sums it up."""
    for number in range(plan.nodes):
        yield number, (partition, gradient[slice(*plan.slice(number))])


def _mean(arrived: Iterable[Any], tasks: int, like: Vector) -> Vector:
    """Return the mean of slices, added up in the order of the partitions."""
    total = np.zeros_like(like)
    for _, (_, values) in sorted(arrived, key=lambda piece: piece[1][0]):
        total += values
    return total / tasks


def _whole(
    parts: Iterable[tuple[int, Vector, Vector]], iteration: int, like: Reached, plan: Exchange
) -> Reached:
    weights, state = np.empty_like(like.weights), np.empty_like(like.state)
    for number, values, rows in parts:
        weights[slice(*plan.slice(number))] = values
        state[:, slice(*plan.slice(number))] = rows
    return Reached(iteration, weights, state)
