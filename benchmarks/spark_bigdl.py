"""BigDL on a real Spark: scaling with nodes, and slices against aggregation through the driver.

    python benchmarks/spark_bigdl.py [--quick] [--parts nodes ways]

* `nodes` (Fig. 3): groups of iterations whose tasks, a node each with a slot and a process of its
  own, wait in the place of computing and sum up gradients by BigDL's exchange over gloo. What the
  exchange adds is a line over the nodes through two of the points (here all of them share the
  machine's cores), which predicts the others.
* `ways`: an iteration by slices, with both ways back of the weights, through the driver as MLlib
  does it, and in groups: time, and bytes at the driver by the event log. Weights of all are held
  against plain training's. Tasks compute next to nothing, so that only the ways differ.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spark_cluster import MS, Waiting, application, cluster, descend, missing
from tables import rows_below

from planner.bigdl import Driver, Exchange
from planner.bigdl.methods import tree_levels
from planner.formats.spark_events import read_spark_log
from planner.runtime.spark import Reached, Training, train_groups, train_jobs

SLOTS = 16
WARMUP = 10
"""Iterations of each way before any is timed."""
PAPER = {"Inception-v1": 1.92, "ResNet": 1.88}
PARTS = ("nodes", "ways")
WAYS = ("reduce", "tree aggregate", "slices, broadcast back", "slices, shuffled back", "groups")


class Pull:
    """A gradient that depends on weights, iteration and partition, and takes next to no time."""

    def __call__(
        self, weights: NDArray[Any], _rows: Sequence[Any], iteration: int, partition: int
    ) -> NDArray[Any]:
        """Return it."""
        pulled: NDArray[Any] = 0.01 * weights + np.float32(0.001 * (partition + iteration))
        return pulled


def plain(elements: int, tasks: int, iterations: int) -> NDArray[Any]:
    """Return the weights that one process comes to."""
    weights = np.ones(elements, np.float32)
    for iteration in range(iterations):
        gradients = [Pull()(weights, (), iteration, task) for task in range(tasks)]
        weights = weights - np.mean(gradients, axis=0)
    return weights


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few points, in about a minute")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    if skipped := missing():
        print(skipped)
        sys.exit(0)
    with cluster(2, SLOTS // 2) as (url, folder):
        if "nodes" in options.parts:
            counts = (1, 2, 3, 4) if options.quick else (1, 2, 4, 6, 8, 12, 16)
            nodes(url, folder, counts, 3 if options.quick else 10)
        if "ways" in options.parts:
            tasks = (2, 4) if options.quick else (4, 8, 16)
            elements = (1_000,) if options.quick else (10_000, 1_000_000)
            ways(url, folder, tasks, elements, 2 if options.quick else 4)


def nodes(url: str, folder: Path, counts: Sequence[int], size: int) -> None:
    """Print Fig. 3: how much faster more nodes go through the data."""
    wait_ms, elements = 200, 250_000
    measured = {}
    with application(url, folder, "nodes", SLOTS) as (context, _):
        for count in counts:
            rows = context.parallelize(range(count), count)
            start = Reached.start(np.zeros(elements, np.float32))
            _, records = train_groups(
                rows, Training(Waiting(wait_ms), descend), start, 3 * size, group_size=size
            )
            measured[count] = median(record.loop_ns for record in records[1:]) / size
    few, many = counts[1], counts[-2]
    slope = (measured[many] - measured[few]) / (many - few)
    first = measured[few] - slope * few
    print(
        f"## Fig. 3: more nodes, tasks that wait {wait_ms} ms, {elements * 4 / 1e6:.0f} MB of "
        "gradients\n"
    )
    errors, table = [], []
    for count in counts:
        ours = first + slope * count
        error = ours / measured[count] - 1
        if count not in (few, many, 1):
            errors.append(abs(error))
        half = measured.get(count // 2) if count % 2 == 0 else None
        table.append(
            (
                count,
                f"{measured[count] / MS:.1f} ms",
                "–" if count == 1 else f"{ours / MS:.1f} ms",
                "–" if count == 1 else f"{error:+.1%}",
                f"{count * measured[1] / measured[count]:.2f}×",
                "–" if half is None else f"{2 * half / measured[count]:.2f}×",
                "alone" if count == 1 else "fitted" if count in (few, many) else "held out",
            )
        )
    rows_below(
        (
            *("nodes", "iteration, measured", "predicted", "error", "throughput over one"),
            *("over half as many", "point"),
        ),
        table,
    )
    printed = ", ".join(f"{name} {times}×" for name, times in PAPER.items())
    print(f"The paper's 16 nodes over 8: {printed}.", end=" ")
    print(f"Held out: mean error {fmean(errors):.1%}.\n" if errors else "\n")


def ways(
    url: str, folder: Path, tasks: Sequence[int], elements: Sequence[int], iterations: int
) -> None:
    """Print what each way of summing up takes."""
    table: list[tuple[int, int, str, float, float]] = []
    settings = {"spark.driver.maxResultSize": "2g"}
    with application(url, folder, "ways", SLOTS, settings) as (context, events):
        rows = context.parallelize(range(tasks[0]), tasks[0])
        for way in WAYS:  # what starts late, and what Java compiles on the way, counts nowhere
            runner(way, rows, elements[0], tasks[0])(WARMUP)
        for size in elements:
            for count in tasks:
                rows = context.parallelize(range(count), count)
                expected = plain(size, count, iterations)
                for way in WAYS:
                    run = runner(way, rows, size, count)
                    run(1)  # starts processes
                    begun = time.perf_counter_ns()
                    weights = run(iterations).weights
                    lasted = (time.perf_counter_ns() - begun) / iterations
                    off = float(np.abs(weights - expected).max())
                    table.append((size, count, way, lasted, off))
    (log,) = events.iterdir()
    jobs = iter(read_spark_log(log).jobs[sum(jobs_of(way, WARMUP) for way in WAYS) :])
    print("## An iteration by slices, through the driver, and in groups\n")
    lines = []
    best: dict[tuple[int, int], float] = {}
    for size, count, _, lasted, _ in table:
        best[size, count] = min(lasted, best.get((size, count), lasted))
    for size, count, way, lasted, off in table:
        whole = 4 * size
        per_iteration = jobs_of(way, iterations)
        spent = [next(jobs).spent for _ in range(jobs_of(way, 1) + per_iteration)]
        results = sum(job.result_bytes for job in spent[jobs_of(way, 1) :]) / iterations
        sent = whole / (iterations if way in ("groups", "slices, shuffled back") else 1)
        lines.append(
            (
                f"{whole / 1e6:.2f} MB",
                count,
                way,
                f"{lasted / MS:.0f} ms",
                f"{lasted / best[size, count]:.2f}×",
                f"{results / 1e6:.3f} MB",
                f"{sent / 1e6:.3f} MB",
                f"{off:.1e}",
            )
        )
        assert off < 1e-6, (way, off)
    rows_below(
        (
            *("weights", "tasks", "way", "iteration", "over the best"),
            *("results to the driver", "broadcast by it, a copy", "off plain training"),
        ),
        lines,
    )


def jobs_of(way: str, iterations: int) -> int:
    """Return how many jobs so many iterations are."""
    if way == "groups":
        return 1
    if way == "slices, shuffled back":
        return iterations + 1  # the last one collects
    return iterations


def runner(way: str, rows: Any, size: int, tasks: int) -> Callable[[int], Reached]:
    """Return what runs iterations in a way."""
    start = Reached.start(np.ones(size, np.float32))
    training = Training(Pull(), descend)
    exchange = Exchange(size, tasks)
    if way == "groups":
        return lambda many: train_groups(rows, training, start, many, group_size=many)[0]
    if way == "reduce":
        plan = Driver((tasks,), torrent=True)
        return lambda many: train_jobs(rows, training, start, many, plan)
    if way == "tree aggregate":
        tree = Driver(tree_levels(tasks), torrent=True)
        return lambda many: train_jobs(rows, training, start, many, tree)
    if way == "slices, broadcast back":
        return lambda many: train_jobs(rows, training, start, many, exchange, back="broadcast")
    return lambda many: train_jobs(rows, training, start, many, exchange, collect_every=many)


if __name__ == "__main__":
    main()
