"""BigDL's synchronisation on Spark: gradients are summed slice by slice, as the plan cuts them.

    python examples/spark/bigdl_slices.py         # needs PySpark and Java 17

Each task sends slice i of its gradient to task i by a shuffle, which sums it up. The rate at which
Spark shuffles is measured with a small gradient; the time for a larger one is predicted by the plan
and measured. The driver sums the same gradients up too, as a check and for comparison.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import planner

TASKS, SMALL, LARGE = 2, 1_000_000, 4_000_000


def request(elements: int, bytes_per_s: float) -> dict[str, Any]:
    """Return the request for a plan: one node a task."""
    return {
        "problem": "bigdl",
        "elements": elements,
        "element_bytes": 4,
        "nodes": TASKS,
        "partitions_per_node": 1,
        "link_bytes_per_s": bytes_per_s,
    }


def gradients(context: Any, elements: int) -> Any:
    """Return an RDD with a gradient in each partition."""

    def make(rank: int, _: Iterator[int]) -> Iterator[np.ndarray]:
        yield np.full(elements, rank + 1, np.float32)

    made = context.parallelize(range(TASKS), TASKS).mapPartitionsWithIndex(make).cache()
    made.count()
    return made


def by_slices(made: Any, slices: list[list[int]]) -> Any:
    """Sum up by a shuffle: the task that reduces slice i adds up all slices i."""
    pairs = made.flatMap(lambda gradient: [(i, gradient[a:b]) for i, (a, b) in enumerate(slices)])
    summed = pairs.reduceByKey(np.add, TASKS, lambda slice_number: slice_number)
    lengths = summed.mapValues(len).collect()  # sums stay with their tasks, as weights do
    assert sorted(lengths) == [(i, b - a) for i, (a, b) in enumerate(slices)]
    return summed


def timed(run: Callable[[], Any]) -> float:
    """Return the median time of some runs."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return median(times)


def main() -> None:
    """Measure, plan, run the plan."""
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().set("spark.ui.showConsoleProgress", "false")
    with SparkContext(f"local[{TASKS}]", "BigDL's slices", conf=conf) as context:
        context.setLogLevel("ERROR")
        times = {}
        for elements in (4 * TASKS, SMALL, LARGE):
            slices = planner.solve(request(elements, 1e9))["slices"]
            made = gradients(context, elements)
            by_slices(made, slices)  # Java compiles while the first jobs run
            times[elements] = timed(partial(by_slices, made, slices))
        job_s = times[4 * TASKS]
        # A plan of a rate r takes objective_ns / r; a shuffle only aggregates, which is half of it.
        unit_s = planner.solve(request(SMALL, 1e9))["objective_ns"] / 2 / 1e9
        rate = 1e9 * unit_s / max(times[SMALL] - job_s, job_s / 50)
        plan = planner.solve(request(LARGE, rate))
        predicted = job_s + plan["objective_ns"] / 2 / 1e9
        driver_s = timed(lambda: made.reduce(np.add))
        whole = np.empty(LARGE, np.float32)
        for i, part in by_slices(made, plan["slices"]).collect():
            whole[slice(*plan["slices"][i])] = part
        assert np.array_equal(whole, made.reduce(np.add))
    print(f"a job takes {1e3 * job_s:.0f} ms, shuffles move {rate / 2**20:.0f} MiB/s a node")
    print(f"plan: {len(plan['slices'])} slices of {LARGE // TASKS:,} elements")
    print(f"predicted {1e3 * predicted:.0f} ms, measured {1e3 * times[LARGE]:.0f} ms")
    print(f"summed up by the driver: {1e3 * driver_s:.0f} ms")


if __name__ == "__main__":
    main()
