"""All that the tests run on Spark, in one process with one cluster and one application.

It writes what came out into a folder: starting Java for each test would take minutes.
"""

import json
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from planner.bigdl import Driver, Exchange, Plan
from planner.bigdl.methods import tree_levels
from planner.collectives.recipes import Recipe
from planner.drizzle import Band
from planner.errors import PlannerError
from planner.runtime.spark import (
    Reached,
    StandaloneCluster,
    Training,
    connect,
    slots_of,
    train_groups,
    train_jobs,
)
from planner.runtime.spark.jobs import Back
from tests.spark.reference import ELEMENTS, PARTITIONS, UPDATE, Once, data, gradient, never

ITERATIONS = 7
PLANS: dict[str, tuple[Plan, Back]] = {
    "reduce": (Driver((PARTITIONS,), torrent=True), "broadcast"),
    "tree_aggregate": (Driver(tree_levels(PARTITIONS), torrent=True), "broadcast"),
    "slices_broadcast": (Exchange(ELEMENTS, 3), "broadcast"),
    "slices": (Exchange(ELEMENTS, 3), "shuffle"),
}


def refused(run: Callable[[], Any]) -> dict[str, Any]:
    begun = time.monotonic()
    try:
        run()
    except PlannerError as error:
        return {
            "error": type(error).__name__,
            "message": str(error),
            "seconds": time.monotonic() - begun,
        }
    return {}


def classify(context: Any) -> None:
    """Let MLlib train, as a program of other people's."""
    from pyspark.mllib.classification import LogisticRegressionWithSGD
    from pyspark.mllib.regression import LabeledPoint

    randomly = np.random.default_rng(5)
    samples = randomly.normal(size=(200, 6))
    points = [LabeledPoint(float(sample[0] > 0), sample) for sample in samples]
    rows = context.parallelize(points, 3).cache()
    LogisticRegressionWithSGD.train(rows, iterations=8, convergenceTol=0.0)


def main(folder: Path) -> None:
    weights: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    start = Reached.start(np.zeros(ELEMENTS), 1)
    training = Training(gradient, UPDATE, 1)
    with StandaloneCluster.start(2, PARTITIONS, folder=folder / "cluster") as cluster:
        facts["again"] = refused(lambda: StandaloneCluster.start(folder=folder / "cluster"))
        context = connect(
            cluster.url,
            "tests",
            {
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": (folder / "events").as_uri(),
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.ui.enabled": "false",
            },
            slots=2 * PARTITIONS,
        )
        context.setLogLevel("OFF")
        facts["slots"] = slots_of(context)
        rows = context.parallelize([row for part in data() for row in part], PARTITIONS)

        def grouped(name: str, used: Training, **options: Any) -> None:
            reached, records = train_groups(rows, used, start, ITERATIONS, **options)
            weights[name] = reached.weights
            facts[name] = [
                {
                    "start": record.start,
                    "size": record.size,
                    "next": record.next_size,
                    "overhead": [record.overhead.numerator, record.overhead.denominator],
                    "wall_ns": record.wall_ns,
                    "loop_ns": record.loop_ns,
                    "failures": record.failures,
                }
                for record in records
            ]

        for name, (plan, back) in PLANS.items():
            weights[name] = train_jobs(
                rows, training, start, ITERATIONS, plan, back=back, collect_every=4
            ).weights
        raising = Training(Once(folder, "raised by a job", 3), UPDATE, 1)
        weights["raised by a job"] = train_jobs(
            rows, raising, start, ITERATIONS, PLANS["slices_broadcast"][0], back="broadcast"
        ).weights
        killing = Training(Once(folder, "killed under slices", 5), UPDATE, 1)
        weights["killed under slices"] = train_jobs(
            rows, killing, start, ITERATIONS, PLANS["slices"][0], collect_every=4
        ).weights

        grouped("groups", training, group_size=3)
        grouped("allGather", training, group_size=4, meet="allGather")
        grouped("ring", training, group_size=7, recipe=Recipe("ring", (PARTITIONS,)))
        band = Band(Fraction(1, 100), Fraction(1, 50), max_group_size=4)
        grouped("controlled", training, band=band)
        raised = Training(Once(folder, "raised in a group", 4), UPDATE, 1)
        grouped("raised in a group", raised, group_size=3)
        killed = Training(Once(folder, "killed in a group", 5), UPDATE, 1)
        grouped("killed in a group", killed, group_size=3, timeout_s=15)
        alone = context.parallelize(data()[0], 1)
        weights["alone"] = train_groups(alone, training, start, 2, group_size=2)[0].weights
        facts["never"] = refused(
            lambda: train_groups(rows, Training(never, UPDATE, 1), start, 2, timeout_s=15)
        )
        classify(context)
        wide = context.parallelize(range(100), 100)
        facts["wide"] = refused(lambda: train_groups(wide, training, start, 2))
        context.stop()
    np.savez(folder / "weights.npz", **weights)
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
