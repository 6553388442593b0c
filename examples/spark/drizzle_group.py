"""A Drizzle group on Spark: as many iterations in one job as the plan says.

    python examples/spark/drizzle_group.py        # needs PySpark, torch and Java 17

A group is one barrier stage: its tasks exchange gradients over gloo, and the driver schedules them
once. Groups of 1 and of 8 are timed, which gives the constants of the model; the plan for them is
run, and its iteration time printed, as predicted and as measured.
"""

import os
import socket
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

import planner

TASKS, COMPUTE_S, MAX_OVERHEAD = 2, 0.02, 0.2


def run_group(context: Any, size: int) -> tuple[float, np.ndarray]:
    """Run one group; return how long it took, and the weights that came of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def task(rank: int, rows: Iterator[float]) -> Iterator[np.ndarray]:
        import torch
        from torch import distributed

        meet = f"tcp://127.0.0.1:{port}"
        distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=TASKS)
        data, weights = torch.tensor(list(rows)), torch.zeros(1)
        for _ in range(size):
            time.sleep(COMPUTE_S)  # stands for computing
            gradient = (weights - data).mean().reshape(1) / TASKS
            distributed.all_reduce(gradient)
            weights -= 0.5 * gradient
        distributed.destroy_process_group()
        yield weights.numpy()

    rows = context.parallelize(np.arange(8, dtype=np.float32).tolist(), TASKS)
    start = time.perf_counter()
    weights = rows.barrier().mapPartitionsWithIndex(task).collect()
    return time.perf_counter() - start, weights[0]


def measured_s(context: Any, size: int) -> float:
    """Return the median time of an iteration in groups of a size."""
    return median(run_group(context, size)[0] for _ in range(5)) / size


def main() -> None:
    """Measure, plan, run the plan."""
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().set("spark.ui.showConsoleProgress", "false")
    with SparkContext(f"local[{TASKS}]", "a Drizzle group", conf=conf) as context:
        context.setLogLevel("ERROR")
        run_group(context, 1)  # Java compiles while the first jobs run
        one, eight = measured_s(context, 1), measured_s(context, 8)
        # An iteration takes compute + group / size, and computing at least what it sleeps.
        group_s = min(max(one - eight, 0) * 8 / 7, one - COMPUTE_S)
        request = {
            "problem": "drizzle",
            "tasks": TASKS,
            "compute_ns": round(1e9 * (one - group_s)),
            "group_ns": round(1e9 * group_s),
            "task_ns": 0,
            "constant_task_ns": 0,
            "max_overhead": MAX_OVERHEAD,
            "max_group_ns": 20 * 10**9,
        }
        plan = planner.solve_or_raise(request)
        if plan["status"] == "infeasible":
            raise SystemExit(f"no group keeps scheduling below the limit: {plan['reason']}")
        size, predicted = plan["group_size"], plan["iteration_ns"] / 1e9
        took = measured_s(context, size)
        weights = run_group(context, size)[1]
    print(f"groups of 1: {1e3 * one:.1f} ms an iteration, of 8: {1e3 * eight:.1f} ms")
    print(f"plan: groups of {size} keep scheduling below {MAX_OVERHEAD:.0%}")
    print(f"predicted {1e3 * predicted:.1f} ms an iteration, measured {1e3 * took:.1f} ms")
    print(f"weights {weights} after a group")


if __name__ == "__main__":
    main()
