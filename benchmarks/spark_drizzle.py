"""Drizzle on a real Spark: its figures with this Spark's constants, predicted and measured.

    python benchmarks/spark_drizzle.py [--quick] [--parts partitions groups choice controller]

A standalone cluster of this machine has two workers and 16 slots, however many cores there are:
tasks wait in the place of computing, so all but Spark's own work needs no processor.

* `partitions` (Fig. 4): iterations one job each, over numbers of tasks; more tasks than slots run
  in waves. Constants are fitted to four of the points, as the event log of the run shows them
  (`planner calibrate drizzle`), and predict the others, measured by the clock.
* `groups` (Figs. 5 and 6): barrier stages of groups of iterations, whose tasks sum up 1,000 numbers
  by BigDL's exchange over gloo, over numbers of tasks and sizes of groups. Constants are fitted to
  eight points of the log.
* `choice`: the group size that the planner chooses by these constants, against the best of a sweep.
* `controller`: the rule from groups of one, and when iterations become shorter, and longer again.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from spark_cluster import MS, Waiting, application, cluster, descend, missing
from tables import rows_below

from planner.bigdl import Driver
from planner.drizzle import (
    Band,
    Calibration,
    Measurement,
    Plan,
    Problem,
    calibrate,
    evaluate,
    solve,
)
from planner.drizzle.loops import loops_of
from planner.formats.spark_events import read_spark_log
from planner.runtime.spark import GroupRecord, Reached, Training, train_groups, train_jobs

SLOTS = 16
ELEMENTS = 1000
MAX_OVERHEAD = Fraction(1, 20)
PAPER_PARTITIONS = 300
PARTS = ("partitions", "groups", "choice", "controller")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run: numbers of tasks, sizes of groups, waiting times, repetitions."""

    partitions: tuple[int, ...]
    partition_waits_ms: tuple[int, ...]
    iterations: int
    tasks: tuple[int, ...]
    waits_ms: tuple[int, ...]
    sizes: tuple[int, ...]
    repetitions: int
    choice_tasks: tuple[int, ...]
    choice_waits_ms: tuple[int, ...]
    controlled_groups: int
    warmup: int

    def repeated(self, size: int) -> int:
        """Return how many groups of a size are timed: more of short ones, which vary most."""
        return max(self.repetitions, 12 // size)


FULL = Effort(
    partitions=(8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512),
    partition_waits_ms=(320, 640),
    iterations=5,
    tasks=(2, 4, 8, 16),
    waits_ms=(20, 60),
    sizes=(1, 2, 4, 8, 16, 32),
    repetitions=3,
    choice_tasks=(2, 4, 6, 8, 12),
    choice_waits_ms=(60, 120),
    controlled_groups=10,
    warmup=60,
)
QUICK = Effort(
    partitions=(8, 16, 32, 64, 128),
    partition_waits_ms=(160,),
    iterations=3,
    tasks=(2, 4),
    waits_ms=(20,),
    sizes=(1, 2, 4),
    repetitions=2,
    choice_tasks=(2,),
    choice_waits_ms=(60,),
    controlled_groups=3,
    warmup=5,
)


@dataclass(frozen=True, slots=True)
class Point:
    """What was run and how long an iteration took by the clock, and waiting in it."""

    tasks: int
    size: int
    wait_ns: int
    measured_ns: int

    @property
    def overhead_ns(self) -> int:
        """What an iteration took beside waiting."""
        return max(self.measured_ns - self.wait_ns, 1)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few points, in about a minute")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    if skipped := missing():
        print(skipped)
        sys.exit(0)
    effort = QUICK if options.quick else FULL
    with cluster(2, SLOTS // 2) as (url, folder):
        held_out: list[float] = []
        if "partitions" in options.parts:
            held_out += partitions(url, folder, effort)
        fitted = None
        if {"groups", "choice"} & set(options.parts):
            errors, fitted = groups(url, folder, effort)
            held_out += errors
        if held_out:
            sizes = [abs(error) for error in held_out]
            print("## All held-out points\n")
            within = sum(size <= 0.15 for size in sizes)
            rows_below(
                ("held-out points", "mean error", "largest", "within 15 %"),
                [(len(sizes), f"{fmean(sizes):.1%}", f"{max(sizes):.1%}", f"{within}")],
            )
        if "choice" in options.parts and fitted is not None:
            choice(url, folder, effort, fitted)
        if "controller" in options.parts:
            controller(url, folder, effort)


def predicted(fitted: Calibration, point: Point) -> float:
    """Return the time of an iteration that constants promise, in nanoseconds."""
    problem = Problem(
        compute_ns=point.wait_ns,
        tasks=point.tasks,
        group_ns=fitted.group_ns,
        task_ns=fitted.task_ns,
        constant_task_ns=fitted.constant_task_ns,
        max_overhead=MAX_OVERHEAD,
    )
    return float(evaluate(problem, Plan(point.size)).iteration)


def constants(fitted: Calibration, points: int) -> None:
    """Print fitted constants."""
    rows_below(
        ("fitted to", "a group", "a task, once a group", "a task, every iteration"),
        [
            (
                f"{points} points of the log",
                *(
                    f"{float(value) / MS:.3f} ms"
                    for value in (fitted.group_ns, fitted.task_ns, fitted.constant_task_ns)
                ),
            )
        ],
    )


def partitions(url: str, folder: Path, effort: Effort) -> list[float]:
    """Print Fig. 4, and return the errors of the points that nothing was fitted to."""
    points = []
    with application(url, folder, "partitions", SLOTS) as (context, events):
        start = Reached.start(np.zeros(ELEMENTS))
        many = effort.partitions[-1] // 4
        rows = context.parallelize(range(many), many)
        warm = Training(Waiting(1), descend)
        train_jobs(rows, warm, start, effort.warmup, Driver((many,), torrent=True))
        for wait_ms in effort.partition_waits_ms:
            for tasks in effort.partitions:
                rows = context.parallelize(range(tasks), tasks)
                waves = -(-tasks // SLOTS)
                training = Training(Waiting(wait_ms / waves), descend)
                plan = Driver((tasks,), torrent=True)
                train_jobs(rows, training, start, 1, plan)  # starts processes
                times = []
                for _ in range(effort.iterations):
                    begun = time.perf_counter_ns()
                    train_jobs(rows, training, start, 1, plan)
                    times.append(time.perf_counter_ns() - begun)
                points.append(Point(tasks, 1, wait_ms * MS, round(median(times))))
    (log,) = events.iterdir()
    loops = loops_of(read_spark_log(log).jobs)[1:]  # the first one starts Java and its compiler
    assert [loop.tasks for loop in loops] == [point.tasks for point in points]
    first = effort.partition_waits_ms[0]
    fitting = {effort.partitions[0], effort.partitions[len(effort.partitions) // 3]}
    fitting |= {effort.partitions[2 * len(effort.partitions) // 3], effort.partitions[-1]}
    rows_of_log, places = [], []
    for place, (point, loop) in enumerate(zip(points, loops, strict=True)):
        if point.wait_ns == first * MS and point.tasks in fitting:
            overhead = max(loop.wall_ns - point.wait_ns, 1)
            rows_of_log.append(Measurement(point.tasks, 1, overhead))
            places.append(place)
    fitted = calibrate(rows_of_log)
    print(f"## Fig. 4: overhead against partitions, {SLOTS} slots, tasks that wait\n")
    constants(fitted, len(places))
    errors, table = [], []
    for place, (point, loop) in enumerate(zip(points, loops, strict=True)):
        ours = predicted(fitted, point)
        error = ours / point.measured_ns - 1
        if place not in places:
            errors.append(error)
        table.append(
            (
                point.tasks,
                f"{point.wait_ns / MS:.0f} ms",
                f"{point.overhead_ns / MS:.1f} ms",
                f"{point.overhead_ns / point.wait_ns:.1%}",
                f"{float(loop.overhead):.1%}",
                f"{point.measured_ns / MS:.1f} ms",
                f"{ours / MS:.1f} ms",
                f"{error:+.1%}",
                "fitted" if place in places else "held out",
            )
        )
    rows_below(
        (
            *("partitions", "waiting", "overhead", "over waiting", "share by the log"),
            *("iteration, measured", "predicted", "error", "point"),
        ),
        table,
    )
    per_task = float(fitted.task_ns + fitted.constant_task_ns)
    crossing = (float(max(effort.partition_waits_ms)) * MS / 10 - float(fitted.group_ns)) / per_task
    same = (float(fitted.group_ns) + PAPER_PARTITIONS * per_task) * 10
    print(
        f"The paper: 10 % of computing at {PAPER_PARTITIONS} partitions. By these constants: 10 % "
        f"of {max(effort.partition_waits_ms)} ms at {max(crossing, 0):.0f} partitions; "
        f"{PAPER_PARTITIONS} partitions are 10 % of {same / MS:.0f} ms.\n"
    )
    return errors


def run_groups(
    context: Any, tasks: int, wait_ms: float, size: int, repetitions: int
) -> list[GroupRecord]:
    """Run some groups alike."""
    rows = context.parallelize(range(tasks), tasks)
    start = Reached.start(np.zeros(ELEMENTS))
    training = Training(Waiting(wait_ms), descend)
    _, records = train_groups(rows, training, start, repetitions * size, group_size=size)
    return list(records)


def groups(url: str, folder: Path, effort: Effort) -> tuple[list[float], Calibration]:
    """Print Figs. 5 and 6, and return errors held out and the constants."""
    points = []
    with application(url, folder, "groups", SLOTS) as (context, events):
        run_groups(context, effort.tasks[-1], 1, 1, effort.warmup)
        for wait_ms in effort.waits_ms:
            for tasks in effort.tasks:
                run_groups(context, tasks, wait_ms, 1, 2)  # starts processes
                for size in effort.sizes:
                    records = run_groups(context, tasks, wait_ms, size, effort.repeated(size) + 1)
                    times = [record.wall_ns / record.size for record in records[1:]]
                    points.append(Point(tasks, size, wait_ms * MS, round(median(times))))
    (log,) = events.iterdir()
    walls = dict(zip(points, walls_of(log, effort), strict=True))
    few, many = effort.sizes[0], effort.sizes[-2]
    ends = {effort.tasks[0], effort.tasks[-1]}
    chosen = [
        point
        for point in points
        if point.tasks in ends
        and point.size in (few, many)
        and point.wait_ns in {wait * MS for wait in effort.waits_ms}
    ]
    fitted = calibrate(
        [
            Measurement(
                point.tasks,
                point.size,
                max(round(walls[point] - point.wait_ns), 1),
            )
            for point in chosen
        ]
    )
    print("## Figs. 5 and 6: groups of iterations as barrier stages, tasks that wait\n")
    constants(fitted, len(chosen))
    errors, table = [], []
    alone = {(point.tasks, point.wait_ns): point for point in points if point.size == 1}
    for point in points:
        ours = predicted(fitted, point)
        error = ours / point.measured_ns - 1
        if point not in chosen:
            errors.append(error)
        gained = alone[point.tasks, point.wait_ns].measured_ns / point.measured_ns
        table.append(
            (
                point.tasks,
                f"{point.wait_ns / MS:.0f} ms",
                point.size,
                f"{point.measured_ns / MS:.1f} ms",
                f"{ours / MS:.1f} ms",
                f"{error:+.1%}",
                f"{gained:.2f}×",
                "fitted" if point in chosen else "held out",
            )
        )
    rows_below(
        (
            *("tasks", "waiting", "group size", "iteration, measured", "predicted", "error"),
            *("over groups of one", "point"),
        ),
        table,
    )
    print("### What is left of the overhead of single iterations\n")
    print("Means over tasks and waiting. The paper's groups: 20 in Fig. 5, 10 in Fig. 6.\n")
    left = []
    for size in effort.sizes:
        alike = [point for point in points if point.size == size]
        shares = [
            point.overhead_ns / alone[point.tasks, point.wait_ns].overhead_ns for point in alike
        ]
        promised = [
            (predicted(fitted, point) - point.wait_ns)
            / (predicted(fitted, alone[point.tasks, point.wait_ns]) - point.wait_ns)
            for point in alike
        ]
        left.append((size, f"{fmean(shares):.1%}", f"{fmean(promised):.1%}", f"{1 / size:.1%}"))
    rows_below(("group size", "measured", "predicted", "one over the size"), left)
    return errors, fitted


def walls_of(log: Path, effort: Effort) -> list[float]:
    """Return what an iteration of each point took by the log, from group to group."""
    jobs = [job for job in read_spark_log(log).jobs if job.iterations]
    walls, place = [], effort.warmup
    for _ in effort.waits_ms:
        for _ in effort.tasks:
            place += 2
            for size in effort.sizes:
                alike = jobs[place : place + effort.repeated(size) + 1]
                place += effort.repeated(size) + 1
                assert all(job.iterations == size for job in alike)
                lasted = [after.start_ns - job.start_ns for job, after in pairwise(alike[1:])]
                walls.append(median(lasted) / size)
    assert place == len(jobs)
    return walls


def choice(url: str, folder: Path, effort: Effort, fitted: Calibration) -> None:
    """Print the chosen group size against the best of a sweep."""
    table, near = [], 0
    with application(url, folder, "choice", SLOTS) as (context, _):
        for wait_ms in effort.choice_waits_ms:
            for tasks in effort.choice_tasks:
                always = fitted.constant_task_ns * tasks
                problem = Problem(
                    compute_ns=round(wait_ms * MS + always),
                    tasks=tasks,
                    group_ns=fitted.group_ns,
                    task_ns=fitted.task_ns,
                    max_overhead=MAX_OVERHEAD,
                )
                plan = solve(problem).plan
                assert plan is not None
                run_groups(context, tasks, wait_ms, 1, 2)
                sizes = sorted({1, *(2**power for power in range(1, 9)), plan.group_size})
                sizes = [size for size in sizes if size <= 2 * plan.group_size]
                rates = {}
                for size in sizes:
                    times = [
                        record.wall_ns / record.size
                        for record in run_groups(context, tasks, wait_ms, size, 2)
                    ]
                    rates[size] = 1e9 / min(times)
                best = max(rates, key=lambda size: rates[size])
                share = rates[plan.group_size] / rates[best]
                near += share >= 0.95
                table.append(
                    (
                        tasks,
                        f"{wait_ms} ms",
                        plan.group_size,
                        f"{rates[plan.group_size]:.2f}",
                        best,
                        f"{rates[best]:.2f}",
                        f"{rates[1]:.2f}",
                        f"{share:.1%}",
                    )
                )
    print("## The chosen group size against the best of a sweep\n")
    print(f"At most {float(MAX_OVERHEAD):.0%} scheduling. {near} of {len(table)} within 5 %.\n")
    rows_below(
        (
            *("tasks", "waiting", "chosen size", "iterations a second", "best size"),
            *("iterations a second, best", "in groups of one", "of the best"),
        ),
        table,
    )


def controller(url: str, folder: Path, effort: Effort) -> None:
    """Print what the rule does from groups of one, and as the load changes."""
    band = Band(MAX_OVERHEAD / 2, MAX_OVERHEAD, step=8, max_group_size=512)
    tasks, slow, fast = 4, 240, 60
    print(f"## The rule from groups of one, {tasks} tasks, waiting {slow}, {fast}, {slow} ms\n")
    print(f"Band: {float(band.low):.1%} to {float(band.high):.1%} scheduling.\n")
    table: list[Sequence[object]] = []
    with application(url, folder, "controller", SLOTS) as (context, _):
        rows = context.parallelize(range(tasks), tasks)
        run_groups(context, tasks, 1, 1, 2)
        reached, size = Reached.start(np.zeros(ELEMENTS)), 1
        for wait_ms in (slow, fast, slow):
            settled = None
            for number in range(1, effort.controlled_groups + 1):
                training = Training(Waiting(wait_ms), descend)
                reached, (record,) = train_groups(
                    rows, training, reached, size, group_size=size, band=band
                )
                inside = band.low <= record.overhead <= band.high
                if inside and settled is None:
                    settled = number
                table.append(
                    (
                        f"{wait_ms} ms",
                        number,
                        record.size,
                        f"{float(record.overhead):.1%}",
                        record.next_size,
                        "inside" if inside else "above" if record.overhead > band.high else "below",
                    )
                )
                size = record.next_size
                if settled is not None and number >= settled + 2:
                    break
    rows_below(("waiting", "group", "size", "scheduling", "next size", "of the band"), table)


if __name__ == "__main__":
    main()
